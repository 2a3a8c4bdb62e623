"""Lanes, which keep the order of related queue items over all workers; and the owner's pause."""

from alembic import op

revision = "core_005"
down_revision = "core_004"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE queue_items ADD COLUMN lane text,"
        " ADD COLUMN aside boolean NOT NULL DEFAULT false"
    )
    op.execute(
        "CREATE INDEX queue_items_lanes ON queue_items (queue, lane, id)"
        " WHERE lane IS NOT NULL AND state IN ('ready', 'leased')"
    )
    op.execute("""
    CREATE TABLE pause (
        one    boolean PRIMARY KEY DEFAULT true CHECK (one),
        since  timestamptz NOT NULL DEFAULT now(),
        until  timestamptz
    )
    """)
    # Until now only the owner wrote, on the console; requests that are still under way say so from here on.
    op.execute("""
    UPDATE queue_items SET payload = jsonb_set(payload, '{request,sender_roles}', '["owner"]')
    WHERE state <> 'done' AND payload #>> '{request,source_channel}' = 'console'
    """)
    op.execute("""
    UPDATE scheduled_tasks SET request = jsonb_set(request, '{sender_roles}', '["owner"]')
    WHERE request ->> 'source_channel' = 'console'
    """)
