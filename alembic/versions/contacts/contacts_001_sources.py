"""Address books: accounts, the state of their synchronization, and links from their cards to people."""

from alembic import op

revision = "contacts_001"
down_revision = None
branch_labels = ("contacts",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE contacts_source_accounts (
        id               uuid PRIMARY KEY,
        kind             text NOT NULL CHECK (kind IN ('carddav', 'google')),
        name             text NOT NULL,
        created_at       timestamptz NOT NULL DEFAULT now(),
        disconnected_at  timestamptz,
        UNIQUE (kind, name)
    )
    """)
    op.execute("""
    CREATE TABLE contacts_sync_state (
        account_id  uuid PRIMARY KEY REFERENCES contacts_source_accounts ON DELETE CASCADE,
        cursor      text,
        synced_at   timestamptz,
        full_at     timestamptz,
        told_at     timestamptz,
        error       text,
        counts      jsonb NOT NULL DEFAULT '{}'
    )
    """)
    op.execute("""
    CREATE TABLE contacts_source_links (
        id            uuid PRIMARY KEY,
        account_id    uuid NOT NULL REFERENCES contacts_source_accounts ON DELETE CASCADE DEFERRABLE,
        external_id   text NOT NULL,
        person_id     uuid,
        candidate_id  uuid,
        etag          text,
        fields        jsonb NOT NULL,
        shown         text GENERATED ALWAYS AS (fields ->> 'name') STORED,
        UNIQUE (account_id, external_id),
        CHECK ((person_id IS NULL) <> (candidate_id IS NULL))
    )
    """)
    op.execute(
        "CREATE INDEX contacts_source_links_person ON contacts_source_links (person_id)"
        " WHERE person_id IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX contacts_source_links_waiting ON contacts_source_links (id)"
        " WHERE candidate_id IS NOT NULL"
    )
    op.execute("SELECT make_record_table('contacts_source_links', 'contact {shown}')")
