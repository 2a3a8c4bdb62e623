"""Earlier vacuum of queue_items, including its indexes.

Each claimed item leaves a dead entry in the index of ready items, and every claim steps over all of them. By
default they stay until a fifth of the table has changed, which is a lot in a table that keeps done items, and
the index cleanup is skipped if few pages have changed.
"""

from alembic import op

revision = "core_009"
down_revision = "core_008"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE queue_items SET (
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 2000,
        vacuum_index_cleanup = on
    )
    """)
