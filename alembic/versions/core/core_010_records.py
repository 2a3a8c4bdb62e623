"""Records: rows that know their source, and the history from which a change can be undone.

A migration of a domain table ends with ``SELECT make_record_table('<table>', '<label>')``. The table needs a
column ``id uuid PRIMARY KEY``. The label names a row in a sentence, with columns in braces:
``{type} {value}``.
"""

from alembic import op

revision = "core_010"
down_revision = "core_009"


def upgrade() -> None:
    op.execute("CREATE TABLE record_tables (name text PRIMARY KEY, label text NOT NULL)")
    op.execute("""
    CREATE TABLE record_changes (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        table_name  text NOT NULL,
        record_id   uuid NOT NULL,
        operation   text NOT NULL CHECK (operation IN ('insert', 'update', 'delete')),
        before      jsonb,
        after       jsonb,
        request_id  uuid,
        session_id  uuid,
        sender      text,
        trust       text NOT NULL,
        changed_at  timestamptz NOT NULL DEFAULT now(),
        is_undo     boolean NOT NULL DEFAULT false,
        undone_at   timestamptz
    )
    """)
    op.execute("CREATE INDEX record_changes_record ON record_changes (record_id, id)")
    op.execute(
        "CREATE INDEX record_changes_request ON record_changes (request_id, id)"
        " WHERE request_id IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX record_changes_undoable ON record_changes (id)"
        " WHERE undone_at IS NULL AND NOT is_undo"
    )
    op.execute("""
    CREATE FUNCTION call_provenance() RETURNS jsonb LANGUAGE sql STABLE AS $$
        SELECT nullif(current_setting('butlers.provenance', true), '')::jsonb
    $$
    """)
    # Without a provenance in the transaction a row counts as written by others.
    op.execute("""
    CREATE FUNCTION stamp_provenance() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        source jsonb := call_provenance();
        writer text := coalesce(source ->> 'trust', 'outside');
    BEGIN
        IF current_setting('butlers.undo', true) = 'on' THEN
            RETURN NEW;
        END IF;
        IF TG_OP = 'INSERT' THEN
            NEW.request_id := (source ->> 'request_id')::uuid;
            NEW.session_id := (source ->> 'session_id')::uuid;
            NEW.sender := source ->> 'sender';
            NEW.trust := writer;
        ELSE
            NEW.updated_at := now();
            IF writer <> 'owner' AND OLD.trust = 'owner' THEN
                NEW.trust := writer;
                NEW.sender := source ->> 'sender';
            END IF;
        END IF;
        RETURN NEW;
    END
    $$
    """)
    op.execute("""
    CREATE FUNCTION keep_record_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        source jsonb := call_provenance();
        before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
        after jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    BEGIN
        IF before - 'updated_at' = after - 'updated_at' THEN
            RETURN NULL;
        END IF;
        INSERT INTO record_changes (table_name, record_id, operation, before, after, request_id,
                                    session_id, sender, trust, is_undo)
        VALUES (TG_TABLE_NAME, (coalesce(after, before) ->> 'id')::uuid, lower(TG_OP), before, after,
                (source ->> 'request_id')::uuid, (source ->> 'session_id')::uuid,
                source ->> 'sender', coalesce(source ->> 'trust', 'outside'),
                coalesce(current_setting('butlers.undo', true), '') = 'on');
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE FUNCTION make_record_table(name regclass, label text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('ALTER TABLE %s
            ADD COLUMN IF NOT EXISTS request_id uuid,
            ADD COLUMN IF NOT EXISTS session_id uuid,
            ADD COLUMN IF NOT EXISTS sender text,
            ADD COLUMN IF NOT EXISTS trust text NOT NULL DEFAULT ''owner'',
            ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now(),
            ADD COLUMN IF NOT EXISTS updated_at timestamptz NOT NULL DEFAULT now()', name);
        EXECUTE format('CREATE TRIGGER stamp_provenance BEFORE INSERT OR UPDATE ON %s
            FOR EACH ROW EXECUTE FUNCTION stamp_provenance()', name);
        EXECUTE format('CREATE TRIGGER keep_record_change AFTER INSERT OR UPDATE OR DELETE ON %s
            FOR EACH ROW EXECUTE FUNCTION keep_record_change()', name);
        INSERT INTO record_tables SELECT relname, label FROM pg_class WHERE oid = name;
    END
    $$
    """)
