"""Subject, thread references and buttons of a delivery."""

from alembic import op

revision = "messenger_003"
down_revision = "messenger_002"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE deliveries
        ADD COLUMN subject             text,
        ADD COLUMN message_references  text[] NOT NULL DEFAULT '{}',
        ADD COLUMN actions             jsonb NOT NULL DEFAULT '[]'
    """)
