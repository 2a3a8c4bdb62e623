"""Start of an item's wait for an unavailable peer, the notices of a day, and an index by request."""

from alembic import op

revision = "core_007"
down_revision = "core_006"


def upgrade() -> None:
    op.execute("ALTER TABLE queue_items ADD COLUMN waits_since timestamptz")
    op.execute("""
    CREATE INDEX queue_items_of_request ON queue_items ((payload ->> 'request_id'))
        WHERE queue IN ('notify', 'deliveries')
    """)
    op.execute("""
    CREATE TABLE told (
        what text NOT NULL,
        whom text NOT NULL,
        day  date NOT NULL,
        PRIMARY KEY (what, whom, day)
    )
    """)
