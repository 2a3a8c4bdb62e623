"""Calendars on servers: files as last seen, local changes to write, sync cursors and the log of writes."""

from alembic import op

revision = "calendar_002"
down_revision = "calendar_001"


def upgrade() -> None:
    # ``writing`` is the file of a write that was begun: its answer may have been lost.
    op.execute("""
    CREATE TABLE calendar_objects (
        source_id  uuid NOT NULL REFERENCES calendar_sources ON DELETE CASCADE,
        uid        text NOT NULL,
        href       text NOT NULL,
        etag       text,
        data       text,
        writing    text,
        PRIMARY KEY (source_id, uid),
        UNIQUE (source_id, href)
    )
    """)
    op.execute("""
    CREATE TABLE calendar_pushes (
        source_id  uuid NOT NULL REFERENCES calendar_sources ON DELETE CASCADE,
        uid        text NOT NULL,
        version    bigint GENERATED ALWAYS AS IDENTITY,
        error      text,
        PRIMARY KEY (source_id, uid)
    )
    """)
    op.execute("""
    CREATE TABLE calendar_sync_cursors (
        source_id  uuid PRIMARY KEY REFERENCES calendar_sources ON DELETE CASCADE,
        token      text,
        synced_at  timestamptz,
        full_at    timestamptz,
        error      text
    )
    """)
    op.execute("""
    CREATE TABLE calendar_action_log (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        source_id  uuid NOT NULL REFERENCES calendar_sources ON DELETE CASCADE,
        uid        text NOT NULL,
        action     text NOT NULL CHECK (action IN ('create', 'update', 'delete', 'merge')),
        detail     text,
        at         timestamptz NOT NULL DEFAULT now()
    )
    """)
    # A change of ours in any way, undo included, is written to the calendar's server.
    op.execute("""
    CREATE FUNCTION push_calendar_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        changed calendar_events := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    BEGIN
        IF coalesce(current_setting('butlers.calendar_sync', true), '') = 'on' THEN
            RETURN NULL;
        END IF;
        INSERT INTO calendar_pushes (source_id, uid)
        SELECT id, changed.uid FROM calendar_sources
        WHERE id = changed.source_id AND kind IN ('caldav', 'google')
        ON CONFLICT (source_id, uid) DO UPDATE SET version = DEFAULT, error = NULL;
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER push_calendar_change AFTER INSERT OR UPDATE OR DELETE ON calendar_events
    FOR EACH ROW EXECUTE FUNCTION push_calendar_change()
    """)
