"""The approvals module has the name of the old table of questions; it moves the open ones."""

from alembic import op

revision = "messenger_004"
down_revision = "messenger_003"


def upgrade() -> None:
    op.execute("ALTER TABLE pending_actions RENAME TO delivery_questions")
    op.execute("ALTER INDEX pending_actions_pkey RENAME TO delivery_questions_pkey")
    op.execute("ALTER INDEX pending_actions_open RENAME TO delivery_questions_open")
