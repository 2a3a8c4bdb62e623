"""Lists with due dates and repeats, notes with tags, schemas of collections; all with source and history."""

from alembic import op

revision = "general_002"
down_revision = "general_001"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE collections ADD COLUMN schema jsonb
    """)
    op.execute("""
    ALTER TABLE collection_items ADD COLUMN title text GENERATED ALWAYS AS (
        coalesce(data ->> 'title', data ->> 'name', data ->> 'text', left(data::text, 80))
    ) STORED
    """)
    op.execute("""
    CREATE TABLE notes (
        id    uuid PRIMARY KEY,
        text  text NOT NULL,
        tags  text[] NOT NULL DEFAULT '{}',
        created_at  timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("""
    CREATE TABLE list_items (
        id           uuid PRIMARY KEY,
        list         text NOT NULL,
        title        text NOT NULL,
        due_on       date,
        due_at       timestamptz,
        repeat_rule  text,
        done_at      timestamptz,
        CHECK (num_nonnulls(due_on, due_at) <= 1),
        CHECK (repeat_rule IS NULL OR num_nonnulls(due_on, due_at) = 1)
    )
    """)
    # Notes were items of a collection named "notes".
    op.execute("""
    INSERT INTO notes (id, text, tags, created_at)
    SELECT item.id, item.data ->> 'text', item.tags, item.created_at
    FROM collection_items AS item JOIN collections ON collections.id = collection_id
    WHERE collections.name = 'notes' AND item.data ->> 'text' <> ''
    """)
    op.execute("""
    DELETE FROM collection_items USING collections
    WHERE collections.id = collection_id AND collections.name = 'notes' AND data ->> 'text' <> ''
    """)
    op.execute("""
    DELETE FROM collections WHERE name = 'notes'
      AND NOT EXISTS (SELECT FROM collection_items WHERE collection_id = collections.id)
    """)
    op.execute("SELECT make_record_table('collections', 'collection {name}')")
    op.execute("SELECT make_record_table('collection_items', '{title}')")
    op.execute("SELECT make_record_table('notes', 'note “{text}”')")
    op.execute("SELECT make_record_table('list_items', '{title} on the list {list}')")
    op.execute("CREATE INDEX notes_newest ON notes (created_at DESC, id DESC)")
    op.execute("CREATE INDEX notes_tags ON notes USING gin (tags)")
    op.execute("CREATE INDEX notes_words ON notes USING gin (to_tsvector('simple', text))")
    op.execute("CREATE INDEX list_items_open ON list_items (list, id) WHERE done_at IS NULL")
    op.execute(
        "CREATE INDEX list_items_words ON list_items USING gin (to_tsvector('simple', title))"
    )
    op.execute(
        "CREATE INDEX collection_items_words ON collection_items USING gin (to_tsvector('simple', data))"
    )
    op.execute("CREATE INDEX collection_items_tags ON collection_items USING gin (tags)")
