"""Session columns for the run time of the process and the reason of its end."""

from alembic import op

revision = "core_006"
down_revision = "core_005"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE sessions
        ADD COLUMN exit_seconds  real,
        ADD COLUMN end_reason    text
    """)
