"""How a part of a message ended goes the same way as what was said about it, and behind it."""

from alembic import op

revision = "core_008"
down_revision = "core_007"


def upgrade() -> None:
    op.execute("""
    UPDATE queue_items
    SET queue = 'notify', key = 'ended:' || key, payload = jsonb_build_object('ended', payload)
    WHERE queue = 'reports'
    """)
