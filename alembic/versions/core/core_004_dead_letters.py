"""Dead letters: a column that records whether the sender has been told."""

from alembic import op

revision = "core_004"
down_revision = "core_003"


def upgrade() -> None:
    op.execute("ALTER TABLE queue_items ADD COLUMN told boolean NOT NULL DEFAULT false")
    op.execute("UPDATE queue_items SET told = true WHERE state = 'dead'")  # long ago, by now
    op.execute(
        "CREATE INDEX queue_items_untold ON queue_items (queue, id)"
        " WHERE state = 'dead' AND NOT told"
    )
