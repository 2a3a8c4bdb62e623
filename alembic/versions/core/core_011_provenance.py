"""Provenance of state values and schedules, and of what a session had read when it made a call.

A transaction without a provenance counts as written by others, and so do the values and schedules of
sessions from before this migration: their origin is not known.
"""

from alembic import op

revision = "core_011"
down_revision = "core_010"

COLUMNS = """
    ADD COLUMN request_id uuid,
    ADD COLUMN session_id uuid,
    ADD COLUMN sender     text,
    ADD COLUMN trust      text NOT NULL DEFAULT 'outside' CHECK (trust IN ('owner', 'outside'))
"""


def upgrade() -> None:
    op.execute(f"ALTER TABLE state {COLUMNS}")
    op.execute(f"ALTER TABLE scheduled_tasks {COLUMNS}")
    op.execute("UPDATE state SET trust = 'owner' WHERE starts_with(key, 'module:')")
    op.execute("UPDATE scheduled_tasks SET trust = 'owner' WHERE created_by NOT LIKE 'session:%'")
    op.execute("UPDATE scheduled_tasks SET sender = request ->> 'source_sender_identity'")
    # A value is replaced as a whole, so its last writer counts.
    op.execute("""
    CREATE FUNCTION stamp_writer() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        source jsonb := call_provenance();
    BEGIN
        NEW.request_id := (source ->> 'request_id')::uuid;
        NEW.session_id := (source ->> 'session_id')::uuid;
        NEW.sender := source ->> 'sender';
        NEW.trust := coalesce(source ->> 'trust', 'outside');
        RETURN NEW;
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER stamp_writer BEFORE INSERT OR UPDATE ON state
    FOR EACH ROW EXECUTE FUNCTION stamp_writer()
    """)
    # A schedule may be changed in part: once untrusted, it stays so. One from butler.toml is the owner's.
    op.execute("""
    CREATE FUNCTION stamp_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        source jsonb := call_provenance();
        writer text := coalesce(source ->> 'trust', 'outside');
    BEGIN
        IF current_setting('butlers.undo', true) = 'on' THEN
            RETURN NEW;
        END IF;
        IF NEW.source = 'toml' THEN
            NEW.trust := 'owner';
            NEW.sender := NULL;
        ELSIF TG_OP = 'INSERT' OR writer <> 'owner' THEN
            NEW.trust := writer;
            NEW.sender := source ->> 'sender';
            NEW.request_id := (source ->> 'request_id')::uuid;
            NEW.session_id := (source ->> 'session_id')::uuid;
        END IF;
        RETURN NEW;
    END
    $$
    """)
    # Ticks, which only advance the next run, do not fire it.
    op.execute("""
    CREATE TRIGGER stamp_schedule
    BEFORE INSERT OR UPDATE OF source, cron, run_at, timezone, prompt, message, job_name, job_args,
        check_name, missed, channel, target, thread, request, enabled
    ON scheduled_tasks FOR EACH ROW EXECUTE FUNCTION stamp_schedule()
    """)
    # Deleted records are counted, so that a call that deletes many can be stopped before it commits.
    op.execute("""
    CREATE FUNCTION count_deleted_record() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('butlers.undo', true) IS DISTINCT FROM 'on' THEN
            PERFORM set_config('butlers.deleted', (coalesce(nullif(
                current_setting('butlers.deleted', true), ''), '0')::integer + 1)::text, true);
        END IF;
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE FUNCTION watch_record_deletions() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('CREATE TRIGGER count_deleted_record AFTER DELETE ON %I
            FOR EACH ROW EXECUTE FUNCTION count_deleted_record()', NEW.name);
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER watch_record_deletions AFTER INSERT ON record_tables
    FOR EACH ROW EXECUTE FUNCTION watch_record_deletions()
    """)
    op.execute("""
    DO $$
    DECLARE
        kept text;
    BEGIN
        FOR kept IN SELECT name FROM record_tables LOOP
            EXECUTE format('CREATE TRIGGER count_deleted_record AFTER DELETE ON %I
                FOR EACH ROW EXECUTE FUNCTION count_deleted_record()', kept);
        END LOOP;
    END
    $$
    """)
    # Untrusted text that a session had read: a later session of the same request starts with it.
    op.execute("ALTER TABLE tool_calls ADD COLUMN outside text[] NOT NULL DEFAULT '{}'")
