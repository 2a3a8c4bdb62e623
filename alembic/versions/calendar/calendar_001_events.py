"""Calendars, their events with source and history, and the projected occurrences of recurring events.

Times of an event are local to its zone. ``starts_at`` and ``ends_at`` are the instants; for an event without
a zone (all-day or floating) they are the local times written as UTC. A row with ``series_id`` replaces the
occurrence of that series at the local time ``recurs_at``.
"""

from alembic import op

revision = "calendar_001"
down_revision = None
branch_labels = ("calendar",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE calendar_sources (
        id        uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        name      text NOT NULL UNIQUE,
        kind      text NOT NULL CHECK (kind IN ('local', 'caldav', 'ics', 'google')),
        writable  boolean NOT NULL DEFAULT true,
        shared    boolean NOT NULL DEFAULT false
    )
    """)
    op.execute("INSERT INTO calendar_sources (name, kind) VALUES ('local', 'local')")
    op.execute("""
    CREATE TABLE calendar_events (
        id              uuid PRIMARY KEY,
        source_id       uuid NOT NULL REFERENCES calendar_sources ON DELETE CASCADE,
        uid             text NOT NULL,
        series_id       uuid REFERENCES calendar_events ON DELETE CASCADE DEFERRABLE,
        recurs_at       timestamp,
        title           text NOT NULL,
        description     text,
        location        text,
        start_local     timestamp NOT NULL,
        end_local       timestamp NOT NULL,
        zone            text,
        all_day         boolean NOT NULL DEFAULT false,
        starts_at       timestamptz NOT NULL,
        ends_at         timestamptz NOT NULL,
        last_at         timestamptz,
        rule            text,
        extra_dates     timestamp[] NOT NULL DEFAULT '{}',
        except_dates    timestamp[] NOT NULL DEFAULT '{}',
        status          text NOT NULL DEFAULT 'confirmed'
                        CHECK (status IN ('confirmed', 'tentative', 'cancelled')),
        visibility      text NOT NULL DEFAULT 'default'
                        CHECK (visibility IN ('default', 'public', 'private')),
        busy            boolean NOT NULL DEFAULT true,
        color_id        text,
        organizer       text,
        attendees       jsonb NOT NULL DEFAULT '[]',
        notify_minutes  integer,
        sequence        integer NOT NULL DEFAULT 0,
        recurring       boolean NOT NULL GENERATED ALWAYS AS
                        (rule IS NOT NULL OR extra_dates <> '{}') STORED,
        UNIQUE NULLS NOT DISTINCT (source_id, uid, recurs_at),
        CHECK (end_local >= start_local),
        CHECK (ends_at >= starts_at),
        CHECK ((series_id IS NULL) = (recurs_at IS NULL))
    )
    """)
    op.execute("SELECT make_record_table('calendar_events', '{title}')")
    op.execute("""
    CREATE INDEX calendar_single_times ON calendar_events
    USING gist (tstzrange(starts_at, ends_at, '[]')) WHERE NOT recurring
    """)
    op.execute("CREATE INDEX calendar_overrides ON calendar_events (series_id)")
    op.execute(
        "CREATE INDEX calendar_titles ON calendar_events USING gin (to_tsvector('simple', title))"
    )
    op.execute("""
    CREATE TABLE calendar_event_instances (
        event_id     uuid NOT NULL REFERENCES calendar_events ON DELETE CASCADE,
        start_local  timestamp NOT NULL,
        starts_at    timestamptz NOT NULL,
        ends_at      timestamptz NOT NULL,
        PRIMARY KEY (event_id, start_local)
    )
    """)
    op.execute("""
    CREATE INDEX calendar_instance_times ON calendar_event_instances
    USING gist (tstzrange(starts_at, ends_at, '[]'))
    """)
    # The part of each series whose occurrences are stored as instances.
    op.execute("""
    CREATE TABLE calendar_projections (
        event_id      uuid PRIMARY KEY REFERENCES calendar_events ON DELETE CASCADE,
        covers_from   timestamptz NOT NULL DEFAULT 'infinity',
        covers_until  timestamptz NOT NULL DEFAULT '-infinity'
    )
    """)
    op.execute("CREATE INDEX calendar_covered_from ON calendar_projections (covers_from)")
    op.execute("CREATE INDEX calendar_covered_until ON calendar_projections (covers_until)")
    # A change in any way, undo included, makes the stored occurrences of its series invalid.
    op.execute("""
    CREATE FUNCTION reset_calendar_projection() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        changed calendar_events := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
        series uuid := coalesce(changed.series_id, changed.id);
    BEGIN
        IF TG_OP = 'INSERT' AND changed.series_id IS NULL AND NOT changed.recurring THEN
            RETURN NULL;
        END IF;
        DELETE FROM calendar_event_instances WHERE event_id = series;
        DELETE FROM calendar_projections WHERE event_id = series;
        INSERT INTO calendar_projections (event_id)
        SELECT id FROM calendar_events WHERE id = series AND recurring;
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER reset_calendar_projection AFTER INSERT OR UPDATE OR DELETE ON calendar_events
    FOR EACH ROW EXECUTE FUNCTION reset_calendar_projection()
    """)
