"""The Messenger's tables: every delivery, its receipt, and the console's mailbox."""

from alembic import op

revision = "messenger_001"
down_revision = None
branch_labels = ("messenger",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE deliveries (
        delivery_id          uuid PRIMARY KEY,
        idempotency_key      text NOT NULL UNIQUE,
        request_id           uuid,
        origin               text NOT NULL,
        intent               text NOT NULL,
        channel              text NOT NULL,
        target               text NOT NULL,
        thread               text,
        message              text NOT NULL,
        accepted_at          timestamptz NOT NULL DEFAULT now(),
        provider_message_id  text,
        delivered_at         timestamptz
    )
    """)
    op.execute("CREATE INDEX deliveries_request ON deliveries (request_id)")
    op.execute("""
    CREATE TABLE console_mailbox (
        position     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        delivery_id  uuid NOT NULL UNIQUE,
        target       text NOT NULL,
        request_id   uuid,
        origin       text NOT NULL,
        message      text NOT NULL,
        posted_at    timestamptz NOT NULL DEFAULT now(),
        shown_at     timestamptz
    )
    """)
    op.execute("CREATE INDEX console_mailbox_request ON console_mailbox (request_id)")
    op.execute(
        "CREATE INDEX console_mailbox_waiting ON console_mailbox (target, position) WHERE shown_at IS NULL"
    )
