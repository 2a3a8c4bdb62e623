"""The answers that a message of ours offered as buttons, so that a plain "yes" has a meaning."""

from alembic import op

revision = "switchboard_003"
down_revision = "switchboard_002"


def upgrade() -> None:
    op.execute("ALTER TABLE said ADD COLUMN answers text[] NOT NULL DEFAULT '{}'")
