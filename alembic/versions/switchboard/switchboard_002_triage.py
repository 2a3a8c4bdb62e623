"""Triage: states and senders of messages, routing rules, the route of each part, answers, and connectors."""

from alembic import op

revision = "switchboard_002"
down_revision = "switchboard_001"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE message_inbox
        ADD COLUMN event_id      text,
        ADD COLUMN reply_to      text,
        ADD COLUMN conversation  text,
        ADD COLUMN sender_roles  text[] NOT NULL DEFAULT '{}',
        ADD COLUMN attachments   jsonb NOT NULL DEFAULT '[]',
        ADD COLUMN state         text NOT NULL DEFAULT 'accepted'
                                 CHECK (state IN ('accepted', 'held', 'skipped', 'noted')),
        ADD COLUMN state_reason  text,
        ADD COLUMN rule_id       uuid,
        ADD COLUMN decided_at    timestamptz
    """)
    op.execute("UPDATE message_inbox SET sender_roles = '{owner}'")  # there was only the console
    op.execute(
        "CREATE INDEX message_inbox_conversation ON message_inbox (conversation, received_at DESC)"
    )
    op.execute("CREATE INDEX message_inbox_event ON message_inbox (channel, endpoint, event_id)")
    op.execute(
        "CREATE INDEX message_inbox_held ON message_inbox (channel, sender) WHERE state = 'held'"
    )
    op.execute(
        "CREATE INDEX message_inbox_content ON message_inbox (content_hash, received_at)"
        " WHERE event_id IS NULL"
    )
    op.execute("""
    CREATE TABLE route_decisions (
        request_id      uuid NOT NULL REFERENCES message_inbox ON DELETE CASCADE,
        target          text NOT NULL,
        position        integer NOT NULL,
        rule            text NOT NULL,
        reason          text NOT NULL,
        part            text,
        after_previous  boolean NOT NULL DEFAULT false,
        decided_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
        routed_at       timestamptz,
        ended_at        timestamptz,
        ended_well      boolean,
        PRIMARY KEY (request_id, target)
    )
    """)
    op.execute("""
    INSERT INTO route_decisions (request_id, target, position, rule, reason, decided_at, routed_at)
    SELECT request_id, route_target, 0, route_rule, route_reason, received_at, routed_at
    FROM message_inbox WHERE route_target IS NOT NULL
    """)
    op.execute("UPDATE message_inbox SET decided_at = received_at WHERE route_target IS NOT NULL")
    op.execute("""
    ALTER TABLE message_inbox
        DROP COLUMN route_target, DROP COLUMN route_rule, DROP COLUMN route_reason, DROP COLUMN routed_at
    """)
    op.execute("""
    CREATE TABLE triage_rules (
        id          uuid PRIMARY KEY,
        position    integer NOT NULL DEFAULT 100,
        kind        text NOT NULL CHECK (kind IN ('sender', 'domain', 'header', 'pattern')),
        value       text NOT NULL,
        header      text,
        channel     text,
        action      text NOT NULL CHECK (action IN ('route', 'skip', 'metadata_only', 'low_priority')),
        target      text,
        note        text NOT NULL DEFAULT '',
        created_at  timestamptz NOT NULL DEFAULT now(),
        CHECK ((action = 'route') = (target IS NOT NULL)),
        CHECK ((kind = 'header') = (header IS NOT NULL))
    )
    """)
    op.execute("""
    CREATE TABLE said (
        delivery_id   uuid PRIMARY KEY,
        request_id    uuid,
        conversation  text NOT NULL,
        origin        text NOT NULL,
        message       text NOT NULL,
        said_at       timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """)
    op.execute("CREATE INDEX said_conversation ON said (conversation, said_at DESC)")
    op.execute("""
    CREATE TABLE connectors (
        kind           text NOT NULL,
        endpoint       text NOT NULL,
        instance_id    uuid NOT NULL,
        version        text,
        state          text NOT NULL,
        error          text,
        uptime_s       double precision NOT NULL,
        counters       jsonb NOT NULL,
        cursor         jsonb,
        cursor_at      timestamptz,
        first_seen_at  timestamptz NOT NULL DEFAULT now(),
        heartbeat_at   timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (kind, endpoint)
    )
    """)
    op.execute("ALTER TABLE butler_registry ADD COLUMN reflexes jsonb NOT NULL DEFAULT '[]'")
    op.execute("ALTER TABLE butler_registry ADD COLUMN capabilities jsonb NOT NULL DEFAULT '[]'")
