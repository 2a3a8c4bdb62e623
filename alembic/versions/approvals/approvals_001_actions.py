"""Pending actions and standing rules of one butler. Their log is in the shared schema."""

from alembic import op

revision = "approvals_001"
down_revision = None
branch_labels = ("approvals",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE approval_rules (
        id               uuid PRIMARY KEY,
        tool_name        text NOT NULL,
        arg_constraints  jsonb NOT NULL,
        description      text NOT NULL,
        created_from     uuid,
        created_at       timestamptz NOT NULL,
        expires_at       timestamptz,
        max_uses         integer CHECK (max_uses > 0),
        use_count        integer NOT NULL DEFAULT 0,
        active           boolean NOT NULL DEFAULT true,
        trusted_only     boolean NOT NULL DEFAULT true,
        CHECK (use_count <= max_uses)
    )
    """)
    op.execute("CREATE INDEX approval_rules_tool ON approval_rules (tool_name) WHERE active")
    op.execute("""
    CREATE TABLE pending_actions (
        id                uuid PRIMARY KEY,
        tool_name         text NOT NULL,
        tool_args         jsonb NOT NULL,
        args_hash         text NOT NULL,
        agent_summary     text NOT NULL,
        action            text NOT NULL,
        why               text NOT NULL,
        risk_tier         text NOT NULL CHECK (risk_tier IN ('low', 'medium', 'high', 'critical')),
        reversible        boolean NOT NULL,
        group_key         text NOT NULL,
        decides_group     boolean NOT NULL,
        session_id        uuid,
        request_id        uuid,
        sender            text,
        trust             text NOT NULL,
        request           jsonb,
        status            text NOT NULL DEFAULT 'pending' CHECK (
            status IN ('pending', 'approved', 'rejected', 'expired', 'executed')),
        requested_at      timestamptz NOT NULL,
        expires_at        timestamptz NOT NULL,
        asked_at          timestamptz,
        decided_by        text,
        decided_at        timestamptz,
        started_at        timestamptz,
        execution_result  jsonb,
        approval_rule_id  uuid,
        told_at           timestamptz,
        undone_at         timestamptz,
        CHECK (status <> 'executed' OR execution_result IS NOT NULL)
    )
    """)
    op.execute(
        "CREATE INDEX pending_actions_open ON pending_actions (expires_at) WHERE status = 'pending'"
    )
    op.execute("CREATE INDEX pending_actions_newest ON pending_actions (requested_at DESC)")
    op.execute(
        "CREATE INDEX pending_actions_tool ON pending_actions (tool_name, requested_at DESC)"
    )
    _move_delivery_questions()


def _move_delivery_questions() -> None:
    """Move the open questions of the Messenger, which had a table of its own before."""
    op.execute("""
    DO $$
    BEGIN
        IF to_regclass('delivery_questions') IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO pending_actions (id, tool_name, tool_args, args_hash, agent_summary, action, why,
            risk_tier, reversible, group_key, decides_group, trust, requested_at, expires_at, asked_at)
        SELECT question.id, 'delivery_release',
            jsonb_build_object('delivery_id', delivery_id, 'channel', channel, 'target', target,
                               'origin', origin, 'message', message, 'links', payload -> 'links',
                               'reasons', payload -> 'reasons'),
            md5(delivery_id::text), summary, 'send a message', kind, 'high', false,
            kind || ':' || channel || ':' || target, kind = 'new_recipient', 'outside', created_at,
            question.expires_at, question.told_at
        FROM delivery_questions AS question JOIN deliveries USING (delivery_id)
        WHERE decision IS NULL AND deliveries.state = 'parked';
        DROP TABLE delivery_questions;
    END
    $$
    """)
