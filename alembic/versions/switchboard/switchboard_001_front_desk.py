"""The Switchboard's tables: received messages, and registered butlers."""

from alembic import op

revision = "switchboard_001"
down_revision = None
branch_labels = ("switchboard",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE message_inbox (
        request_id      uuid PRIMARY KEY,
        dedupe_key      text NOT NULL UNIQUE,
        channel         text NOT NULL,
        endpoint        text NOT NULL,
        sender          text NOT NULL,
        thread          text,
        text            text NOT NULL,
        raw             jsonb,
        content_hash    text NOT NULL,
        policy_tier     text NOT NULL,
        trace_id        text NOT NULL,
        observed_at     timestamptz NOT NULL,
        received_at     timestamptz NOT NULL,
        route_target    text,
        route_rule      text,
        route_reason    text,
        routed_at       timestamptz
    )
    """)
    op.execute("CREATE INDEX message_inbox_received ON message_inbox (received_at DESC)")
    op.execute("""
    CREATE TABLE butler_registry (
        name            text PRIMARY KEY,
        url             text NOT NULL,
        description     text NOT NULL,
        infrastructure  boolean NOT NULL,
        triggers        jsonb NOT NULL,
        contract_min    integer NOT NULL,
        contract_max    integer NOT NULL,
        liveness_ttl_s  double precision NOT NULL,
        registered_at   timestamptz NOT NULL DEFAULT now(),
        last_seen_at    timestamptz NOT NULL DEFAULT now()
    )
    """)
