"""State and attempts of deliveries, approved recipients, and actions that wait for the owner's approval."""

from alembic import op

revision = "messenger_002"
down_revision = "messenger_001"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE deliveries
        ADD COLUMN state text NOT NULL DEFAULT 'accepted' CHECK (state IN
            ('accepted', 'deferred', 'parked', 'sending', 'delivered', 'unknown', 'expired',
             'failed', 'discarded')),
        ADD COLUMN reason        text,
        ADD COLUMN emoji         text,
        ADD COLUMN source_event  text,
        ADD COLUMN expires_at    timestamptz,
        ADD COLUMN not_before    timestamptz,
        ADD COLUMN tries         integer NOT NULL DEFAULT 0,
        ADD COLUMN told_at       timestamptz
    """)
    _give_old_ones_a_state()
    op.execute("""
    ALTER TABLE deliveries
        ALTER COLUMN expires_at SET NOT NULL,
        ADD CONSTRAINT deliveries_proof
            CHECK (state <> 'delivered' OR provider_message_id IS NOT NULL)
    """)
    op.execute("CREATE INDEX deliveries_newest ON deliveries (accepted_at DESC)")
    op.execute(
        "CREATE INDEX deliveries_untold ON deliveries (accepted_at)"
        " WHERE told_at IS NULL AND state IN ('unknown', 'expired', 'failed')"
    )
    op.execute("CREATE INDEX deliveries_state ON deliveries (state) WHERE state <> 'delivered'")
    _make_tables()


def _give_old_ones_a_state() -> None:
    op.execute("""
    UPDATE deliveries SET
        state = CASE
            WHEN provider_message_id IS NOT NULL THEN 'delivered'
            WHEN EXISTS (SELECT FROM queue_items AS item WHERE item.queue = 'deliveries'
                         AND item.key = delivery_id::text AND item.state = 'dead') THEN 'failed'
            ELSE 'accepted' END,
        told_at = now(),
        expires_at = accepted_at + CASE intent WHEN 'send' THEN interval '24 hours'
                                               ELSE interval '6 hours' END
    """)
    op.execute("UPDATE deliveries SET told_at = NULL WHERE state = 'accepted'")


def _make_tables() -> None:
    op.execute("""
    CREATE TABLE delivery_attempts (
        delivery_id  uuid NOT NULL REFERENCES deliveries ON DELETE CASCADE,
        number       integer NOT NULL,
        line         text,
        recipient    text NOT NULL,
        started_at   timestamptz NOT NULL,
        ended_at     timestamptz,
        outcome      text CHECK (outcome IN
            ('delivered', 'refused', 'unavailable', 'failed', 'busy', 'uncertain', 'died')),
        error_code   text,
        error        text,
        response     text,
        PRIMARY KEY (delivery_id, number)
    )
    """)
    op.execute("CREATE INDEX delivery_attempts_started ON delivery_attempts (started_at)")
    op.execute("""
    CREATE TABLE recipients (
        channel   text NOT NULL,
        target    text NOT NULL,
        known_by  text NOT NULL CHECK (known_by IN ('approved', 'wrote')),
        since     timestamptz NOT NULL,
        PRIMARY KEY (channel, target)
    )
    """)
    op.execute("""
    CREATE TABLE pending_actions (
        id           uuid PRIMARY KEY,
        kind         text NOT NULL,
        summary      text NOT NULL,
        payload      jsonb NOT NULL,
        delivery_id  uuid NOT NULL UNIQUE REFERENCES deliveries ON DELETE CASCADE,
        created_at   timestamptz NOT NULL,
        expires_at   timestamptz NOT NULL,
        decided_at   timestamptz,
        decision     text CHECK (decision IN ('approved', 'rejected', 'expired')),
        decided_by   text,
        told_at      timestamptz
    )
    """)
    op.execute(
        "CREATE INDEX pending_actions_open ON pending_actions (expires_at) WHERE decision IS NULL"
    )
    op.execute(
        "CREATE INDEX deliveries_proof ON deliveries (channel, provider_message_id)"
        " WHERE provider_message_id IS NOT NULL"
    )
