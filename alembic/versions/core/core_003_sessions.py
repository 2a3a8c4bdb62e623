"""Session columns for access, budget and process exit; a digest of each tool call's result."""

from alembic import op

revision = "core_003"
down_revision = "core_002"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE sessions
        ADD COLUMN access           text,
        ADD COLUMN sealed_because   text,
        ADD COLUMN denials          jsonb NOT NULL DEFAULT '[]',
        ADD COLUMN fixed_tokens     integer,
        ADD COLUMN reserved_tokens  bigint,
        ADD COLUMN reserved_usd     numeric(12, 6),
        ADD COLUMN exit_code        integer,
        ADD COLUMN exit_stderr      text
    """)
    op.execute("CREATE INDEX sessions_open ON sessions (id) WHERE completed_at IS NULL")
    op.execute("""
    ALTER TABLE tool_calls
        ADD COLUMN result_digest  text,
        ADD COLUMN result_bytes   integer
    """)
    op.execute(
        "CREATE INDEX tool_calls_request ON tool_calls (request_id, id)"
        " WHERE request_id IS NOT NULL"
    )
