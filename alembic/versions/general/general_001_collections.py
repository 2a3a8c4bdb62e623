"""Collections: entries of any kind that no other butler has a table for."""

from alembic import op

revision = "general_001"
down_revision = None
branch_labels = ("general",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE collections (
        id           uuid PRIMARY KEY,
        name         text NOT NULL UNIQUE,
        description  text,
        created_at   timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("""
    CREATE TABLE collection_items (
        id             uuid PRIMARY KEY,
        collection_id  uuid NOT NULL REFERENCES collections ON DELETE CASCADE,
        data           jsonb NOT NULL,
        tags           text[] NOT NULL DEFAULT '{}',
        created_at     timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute(
        "CREATE INDEX collection_items_newest ON collection_items (collection_id, created_at DESC)"
    )
