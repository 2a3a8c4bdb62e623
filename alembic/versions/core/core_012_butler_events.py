"""Butler events: schedules with a title, a length, a begin and an end, which the calendar shows."""

from alembic import op

revision = "core_012"
down_revision = "core_011"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE scheduled_tasks
        ADD COLUMN title     text,
        ADD COLUMN minutes   integer CHECK (minutes >= 0),
        ADD COLUMN start_at  timestamptz,
        ADD COLUMN until_at  timestamptz
    """)
