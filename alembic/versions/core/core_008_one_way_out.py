"""Moves reports of ended routes into the notify queue, behind the notifications of the same request."""

from alembic import op

revision = "core_008"
down_revision = "core_007"


def upgrade() -> None:
    op.execute("""
    UPDATE queue_items
    SET queue = 'notify', key = 'ended:' || key, payload = jsonb_build_object('ended', payload)
    WHERE queue = 'reports'
    """)
