"""People, and what the owner knows about them.

Foreign keys are deferrable, because undo restores the rows of a cascade in the order of the log.
"""

from alembic import op

revision = "relationship_001"
down_revision = None
branch_labels = ("relationship",)

PERSON = "person_id uuid NOT NULL REFERENCES people ON DELETE CASCADE DEFERRABLE"


def upgrade() -> None:
    op.execute("""
    CREATE TABLE people (
        id                  uuid PRIMARY KEY,
        name                text NOT NULL CHECK (name <> ''),
        company             text,
        job                 text,
        stay_in_touch_days  integer CHECK (stay_in_touch_days > 0),
        is_archived         boolean NOT NULL DEFAULT false,
        merged_into         uuid REFERENCES people ON DELETE SET NULL DEFERRABLE,
        import_key          text,
        words               tsvector GENERATED ALWAYS AS (to_tsvector('simple',
                                name || ' ' || coalesce(company, '') || ' ' || coalesce(job, ''))) STORED
    )
    """)
    op.execute(f"""
    CREATE TABLE aliases (
        id      uuid PRIMARY KEY,
        {PERSON},
        alias   text NOT NULL CHECK (alias <> '')
    )
    """)
    op.execute(f"""
    CREATE TABLE contact_ways (
        id      uuid PRIMARY KEY,
        {PERSON},
        kind    text NOT NULL CHECK (kind IN ('phone', 'email', 'address', 'chat', 'website', 'other')),
        value   text NOT NULL CHECK (value <> ''),
        label   text
    )
    """)
    op.execute(f"""
    CREATE TABLE person_dates (
        id     uuid PRIMARY KEY,
        {PERSON},
        label  text NOT NULL,
        month  integer NOT NULL CHECK (month BETWEEN 1 AND 12),
        day    integer NOT NULL CHECK (day BETWEEN 1 AND 31),
        year   integer CHECK (year BETWEEN 1000 AND 9999),
        UNIQUE (person_id, label),
        CHECK (make_date(coalesce(year, 2000), month, day) IS NOT NULL)
    )
    """)
    op.execute(f"""
    CREATE TABLE person_notes (
        id        uuid PRIMARY KEY,
        {PERSON},
        text      text NOT NULL CHECK (text <> ''),
        noted_on  date NOT NULL,
        words     tsvector GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED
    )
    """)
    op.execute(f"""
    CREATE TABLE interactions (
        id           uuid PRIMARY KEY,
        {PERSON},
        kind         text NOT NULL CHECK (kind IN ('met', 'call', 'message', 'other')),
        happened_at  timestamptz NOT NULL,
        summary      text
    )
    """)
    op.execute(f"""
    CREATE TABLE gifts (
        id         uuid PRIMARY KEY,
        {PERSON},
        what       text NOT NULL CHECK (what <> ''),
        status     text NOT NULL CHECK (status IN ('idea', 'bought', 'given', 'received')),
        occasion   text,
        price      numeric(18, 3) CHECK (price >= 0),
        currency   text,
        day        date
    )
    """)
    op.execute(f"""
    CREATE TABLE loans (
        id          uuid PRIMARY KEY,
        {PERSON},
        direction   text NOT NULL CHECK (direction IN ('lent', 'borrowed')),
        amount      numeric(18, 3) CHECK (amount > 0),
        currency    text,
        repaid      numeric(18, 3) NOT NULL DEFAULT 0 CHECK (repaid >= 0),
        item        text,
        lent_on     date NOT NULL,
        due_on      date,
        settled_on  date,
        shown       text GENERATED ALWAYS AS (
                        coalesce(item, '') || coalesce(amount::numeric(18, 2) || ' ' || currency, '')) STORED,
        CHECK (amount IS NULL OR repaid <= amount),
        CHECK ((amount IS NULL) = (currency IS NULL)),
        CHECK ((amount IS NULL) <> (item IS NULL))
    )
    """)
    op.execute("CREATE TABLE groups (id uuid PRIMARY KEY, name text NOT NULL CHECK (name <> ''))")
    op.execute("CREATE UNIQUE INDEX groups_name ON groups (lower(name))")
    op.execute(f"""
    CREATE TABLE group_members (
        id        uuid PRIMARY KEY,
        group_id  uuid NOT NULL REFERENCES groups ON DELETE CASCADE DEFERRABLE,
        {PERSON},
        UNIQUE (group_id, person_id)
    )
    """)
    op.execute(f"""
    CREATE TABLE relations (
        id        uuid PRIMARY KEY,
        {PERSON},
        relation  text NOT NULL,
        other_id  uuid REFERENCES people ON DELETE CASCADE DEFERRABLE,
        UNIQUE NULLS NOT DISTINCT (person_id, relation, other_id),
        CHECK (other_id IS DISTINCT FROM person_id)
    )
    """)
    op.execute("""
    CREATE TABLE person_merges (
        id         uuid PRIMARY KEY,
        kept_id    uuid NOT NULL REFERENCES people ON DELETE CASCADE DEFERRABLE,
        merged_id  uuid NOT NULL REFERENCES people ON DELETE CASCADE DEFERRABLE,
        moved      jsonb NOT NULL
    )
    """)
    op.execute("""
    CREATE TABLE distinct_people (
        id         uuid PRIMARY KEY,
        first_id   uuid NOT NULL REFERENCES people ON DELETE CASCADE DEFERRABLE,
        second_id  uuid NOT NULL REFERENCES people ON DELETE CASCADE DEFERRABLE,
        UNIQUE (first_id, second_id)
    )
    """)
    for statement in (
        "CREATE INDEX people_name ON people (lower(name), id)",
        "CREATE INDEX people_words ON people USING gin (words)",
        "CREATE UNIQUE INDEX people_import ON people (import_key) WHERE import_key IS NOT NULL",
        "CREATE INDEX people_touch ON people (id) WHERE stay_in_touch_days IS NOT NULL",
        "CREATE INDEX aliases_alias ON aliases (lower(alias))",
        "CREATE INDEX aliases_person ON aliases (person_id)",
        "CREATE UNIQUE INDEX aliases_once ON aliases (person_id, lower(alias))",
        "CREATE UNIQUE INDEX contact_ways_once ON contact_ways (person_id, kind, lower(value))",
        "CREATE INDEX contact_ways_value ON contact_ways (lower(value))",
        "CREATE INDEX person_dates_day ON person_dates ((month * 100 + day))",
        "CREATE INDEX person_notes_person ON person_notes (person_id, noted_on DESC, id DESC)",
        "CREATE INDEX person_notes_words ON person_notes USING gin (words)",
        "CREATE INDEX interactions_person ON interactions (person_id, happened_at DESC, id DESC)",
        "CREATE INDEX interactions_newest ON interactions (happened_at DESC, id DESC)",
        "CREATE INDEX gifts_person ON gifts (person_id)",
        "CREATE INDEX loans_person ON loans (person_id)",
        "CREATE INDEX loans_open ON loans (lent_on) WHERE settled_on IS NULL",
        "CREATE INDEX group_members_person ON group_members (person_id)",
        "CREATE INDEX relations_word ON relations (relation) WHERE other_id IS NULL",
        "CREATE INDEX relations_other ON relations (other_id) WHERE other_id IS NOT NULL",
    ):
        op.execute(statement)
    for table, label in (
        ("people", "person {name}"),
        ("aliases", "name {alias}"),
        ("contact_ways", "{kind} {value}"),
        ("person_dates", "{label}"),
        ("person_notes", "note {text}"),
        ("interactions", "{kind} {summary}"),
        ("gifts", "gift {what}"),
        ("loans", "loan {shown}"),
        ("groups", "group {name}"),
        ("group_members", "group membership"),
        ("relations", "relation {relation}"),
        ("person_merges", "merge"),
        ("distinct_people", "decision about duplicates"),
    ):
        op.execute(f"SELECT make_record_table('{table}', '{label}')")
