"""Contacts: people, their roles, and the addresses they write from. The Switchboard writes them."""

from alembic import op

revision = "shared_002"
down_revision = "shared_001"


def upgrade() -> None:
    op.execute("""
    CREATE TABLE contacts (
        id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        name        text NOT NULL,
        roles       text[] NOT NULL DEFAULT '{}',
        created_at  timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("""
    CREATE TABLE contact_channels (
        channel     text NOT NULL,
        identity    text NOT NULL,
        contact_id  uuid NOT NULL REFERENCES contacts ON DELETE CASCADE,
        PRIMARY KEY (channel, identity)
    )
    """)
    op.execute("CREATE INDEX contact_channels_contact ON contact_channels (contact_id)")
    op.execute("""
    WITH owner AS (INSERT INTO contacts (name, roles) VALUES ('owner', '{owner}') RETURNING id)
    INSERT INTO contact_channels (channel, identity, contact_id) SELECT 'console', 'owner', id FROM owner
    """)
