"""What was claimed leaves a dead entry in the index of what is ready, and each claim steps over all of them.

By default they stay until a fifth of the table has changed, and of a table that keeps what is done that is a
lot; and its indexes are left out where few of its pages have changed.
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
