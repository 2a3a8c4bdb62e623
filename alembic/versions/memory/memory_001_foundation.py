"""Episodes, facts, rules, entities, links, events and tombstones of the memory module.

Every item names its source: butler, message, session, sender and trust. Vectors have pgvector's type where
the extension is installed and are arrays of real numbers otherwise; `memory_vectors` says which.
"""

from alembic import op
from sqlalchemy import text

revision = "memory_001"
down_revision = None
branch_labels = ("memory",)

SOURCE = """
    butler           text NOT NULL,
    request_id       uuid,
    session_id       uuid,
    sender           text NOT NULL,
    trust            text NOT NULL CHECK (trust IN ('owner', 'outside')),
    observed_at      timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now()
"""

INDEXED = """
    content          text NOT NULL CHECK (content <> ''),
    content_hash     text NOT NULL,
    traits           smallint NOT NULL DEFAULT 0,
    embedding        {vector},
    embedded_by      text,
    search_vector    tsvector NOT NULL GENERATED ALWAYS AS
                     (to_tsvector('pg_catalog.english', {searched})) STORED
"""


def upgrade() -> None:
    vector = _vector_type()
    op.execute(f"""
    CREATE TABLE memory_entities (
        id               uuid PRIMARY KEY,
        tenant_id        text NOT NULL DEFAULT 'owner',
        canonical_name   text NOT NULL CHECK (canonical_name <> ''),
        entity_type      text NOT NULL DEFAULT 'person'
                         CHECK (entity_type IN ('person', 'organization', 'place', 'other')),
        aliases          text[] NOT NULL DEFAULT '{{}}',
        is_owner         boolean NOT NULL DEFAULT false,
        author_of        text UNIQUE,
        metadata         jsonb NOT NULL DEFAULT '{{}}',
        merged_into      uuid REFERENCES memory_entities ON DELETE SET NULL,
        updated_at       timestamptz NOT NULL DEFAULT now(),
        {SOURCE}
    )
    """)
    op.execute("CREATE UNIQUE INDEX memory_owner ON memory_entities (is_owner) WHERE is_owner")
    op.execute("CREATE INDEX memory_entity_names ON memory_entities (lower(canonical_name))")
    op.execute(f"""
    CREATE TABLE memory_episodes (
        id               uuid PRIMARY KEY,
        conversation     text NOT NULL,
        turn             integer NOT NULL,
        speaker          text NOT NULL,
        {INDEXED.format(vector=vector, searched="speaker || ' ' || content")},
        importance       real NOT NULL DEFAULT 5.0,
        consolidation    text NOT NULL DEFAULT 'pending'
                         CHECK (consolidation IN ('pending', 'done', 'skipped', 'dead')),
        last_error       text,
        consolidated_by  uuid,
        idempotency_key  text UNIQUE,
        expires_at       timestamptz,
        metadata         jsonb NOT NULL DEFAULT '{{}}',
        {SOURCE}
    )
    """)
    op.execute("CREATE INDEX memory_episode_turns ON memory_episodes (conversation, turn)")
    op.execute("CREATE INDEX memory_episode_times ON memory_episodes (observed_at)")
    op.execute("""
    CREATE INDEX memory_episodes_pending ON memory_episodes (id)
    WHERE consolidation = 'pending'
    """)
    op.execute(f"""
    CREATE TABLE memory_facts (
        id                uuid PRIMARY KEY,
        entity_id         uuid REFERENCES memory_entities ON DELETE CASCADE,
        object_entity_id  uuid REFERENCES memory_entities ON DELETE SET NULL,
        subject           text NOT NULL,
        predicate         text NOT NULL,
        qualifier         text NOT NULL DEFAULT '',
        scope             text NOT NULL DEFAULT 'global',
        {INDEXED.format(vector=vector, searched="subject || ' ' || predicate || ' ' || content")},
        importance        real NOT NULL DEFAULT 5.0,
        confidence        real NOT NULL DEFAULT 1.0 CHECK (confidence BETWEEN 0 AND 1),
        permanence        text NOT NULL DEFAULT 'standard' CHECK (permanence IN
                          ('permanent', 'stable', 'standard', 'volatile', 'ephemeral')),
        validity          text NOT NULL DEFAULT 'active'
                          CHECK (validity IN ('active', 'superseded', 'expired', 'retracted')),
        supersedes_id     uuid REFERENCES memory_facts ON DELETE SET NULL,
        source_episode_id uuid REFERENCES memory_episodes ON DELETE SET NULL,
        valid_from        timestamptz,
        valid_to          timestamptz,
        last_confirmed_at timestamptz NOT NULL,
        tags              text[] NOT NULL DEFAULT '{{}}',
        metadata          jsonb NOT NULL DEFAULT '{{}}',
        {SOURCE}
    )
    """)
    op.execute("""
    CREATE UNIQUE INDEX memory_one_active_fact ON memory_facts
        (coalesce(entity_id::text, lower(subject)), predicate, qualifier, scope,
         (CASE trust WHEN 'owner' THEN 'owner' ELSE sender END))
    WHERE validity = 'active'
    """)
    op.execute("CREATE INDEX memory_facts_of_entity ON memory_facts (entity_id)")
    op.execute("CREATE INDEX memory_facts_of_episode ON memory_facts (source_episode_id)")
    op.execute(f"""
    CREATE TABLE memory_rules (
        id               uuid PRIMARY KEY,
        scope            text NOT NULL DEFAULT 'global',
        {INDEXED.format(vector=vector, searched="content")},
        maturity         text NOT NULL DEFAULT 'candidate'
                         CHECK (maturity IN ('candidate', 'established', 'proven', 'anti_pattern')),
        confidence       real NOT NULL DEFAULT 0.5,
        effectiveness    real NOT NULL DEFAULT 0,
        applied_count    integer NOT NULL DEFAULT 0,
        success_count    integer NOT NULL DEFAULT 0,
        harmful_count    integer NOT NULL DEFAULT 0,
        validity         text NOT NULL DEFAULT 'active' CHECK (validity IN ('active', 'retracted')),
        last_confirmed_at timestamptz NOT NULL,
        source_episode_id uuid REFERENCES memory_episodes ON DELETE SET NULL,
        metadata         jsonb NOT NULL DEFAULT '{{}}',
        {SOURCE}
    )
    """)
    for table in ("memory_episodes", "memory_facts", "memory_rules"):
        # Inside the row: an exact scan would otherwise fetch each vector from a second table.
        op.execute(f"ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN")
        op.execute(f"CREATE INDEX {table}_words ON {table} USING gin (search_vector)")
        op.execute(f"CREATE INDEX {table}_unembedded ON {table} (id) WHERE embedded_by IS NULL")
        op.execute(f"CREATE INDEX {table}_hashes ON {table} (content_hash)")
        op.execute(f"CREATE INDEX {table}_requests ON {table} (request_id)")
    op.execute("""
    CREATE TABLE memory_links (
        from_id   uuid NOT NULL,
        to_id     uuid NOT NULL,
        relation  text NOT NULL CHECK (relation IN
                  ('derived_from', 'supports', 'contradicts', 'supersedes', 'related_to')),
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (from_id, to_id, relation)
    )
    """)
    op.execute("CREATE INDEX memory_links_to ON memory_links (to_id)")
    op.execute("""
    CREATE TABLE memory_events (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        kind        text NOT NULL,
        item_kind   text NOT NULL,
        item_id     uuid,
        session_id  uuid,
        request_id  uuid,
        detail      jsonb NOT NULL DEFAULT '{}',
        at          timestamptz NOT NULL
    )
    """)
    op.execute("CREATE INDEX memory_events_of_item ON memory_events (item_id)")
    op.execute("""
    CREATE TABLE memory_tombstones (
        hash        text PRIMARY KEY,
        reason      text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute(f"""
    CREATE TABLE memory_vectors (
        id      boolean PRIMARY KEY DEFAULT true CHECK (id),
        storage text NOT NULL DEFAULT '{vector}',
        model   text
    )
    """)
    op.execute("INSERT INTO memory_vectors DEFAULT VALUES")


def _vector_type() -> str:
    installed = op.get_bind().execute(text("SELECT 1 FROM pg_extension WHERE extname = 'vector'"))
    return "vector" if installed.scalar() else "real[]"
