"""The log of approvals: every butler may add to it and read its own entries; no butler may change it.

The tables belong to the administrator of the database, so a butler's role cannot remove the triggers.
"""

from alembic import op

revision = "shared_003"
down_revision = "shared_002"


def upgrade() -> None:
    op.execute("""
    CREATE TABLE approval_events (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        writer     name NOT NULL DEFAULT current_user,
        butler     text NOT NULL,
        event      text NOT NULL CHECK (event IN (
            'action_queued', 'action_auto_approved', 'action_approved', 'action_rejected',
            'action_expired', 'action_execution_succeeded', 'action_execution_failed',
            'action_undone', 'rule_created', 'rule_revoked')),
        action_id  uuid,
        rule_id    uuid,
        actor      text NOT NULL,
        detail     jsonb NOT NULL DEFAULT '{}',
        at         timestamptz NOT NULL,
        logged_at  timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("CREATE INDEX approval_events_action ON approval_events (action_id, id)")
    op.execute("ALTER TABLE approval_events ENABLE ROW LEVEL SECURITY")
    op.execute("""
    CREATE POLICY own_entries ON approval_events
    USING (writer = current_user) WITH CHECK (writer = current_user)
    """)
    op.execute("REVOKE ALL ON approval_events FROM PUBLIC")
    op.execute("GRANT SELECT ON approval_events TO PUBLIC")
    op.execute("""
    GRANT INSERT (butler, event, action_id, rule_id, actor, detail, at) ON approval_events TO PUBLIC
    """)
    op.execute("""
    CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the log of approvals is append-only' USING ERRCODE = '42501';
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON approval_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change()
    """)
    op.execute("""
    CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON approval_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()
    """)
    _make_turns()


def _make_turns() -> None:
    """One row: the last notification of any butler, so that the fleet keeps one pace."""
    op.execute(
        "CREATE TABLE question_turn (one boolean PRIMARY KEY CHECK (one), taken_at timestamptz)"
    )
    op.execute("INSERT INTO question_turn VALUES (true, NULL)")
    op.execute("""
    CREATE FUNCTION take_question_turn(at timestamptz, pause interval) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = shared, pg_temp AS $$
        WITH taken AS (
            UPDATE question_turn SET taken_at = at
            WHERE taken_at IS NULL OR taken_at <= at - pause RETURNING true
        )
        SELECT EXISTS (SELECT FROM taken)
    $$
    """)
