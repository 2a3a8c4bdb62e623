"""Addresses of people, for all butlers to read; and exactly one owner among the contacts.

The butler that keeps the people publishes them here. An address here says who somebody is. It permits
nothing: who may write is decided by contact_channels, who may be written to by the Messenger.
"""

from alembic import op

revision = "shared_004"
down_revision = "shared_003"


def upgrade() -> None:
    op.execute("""
    CREATE TABLE contact_info (
        contact_id  uuid NOT NULL,
        type        text NOT NULL,
        value       text NOT NULL,
        name        text NOT NULL,
        PRIMARY KEY (type, value, contact_id)
    )
    """)
    op.execute("CREATE INDEX contact_info_contact ON contact_info (contact_id)")
    op.execute(
        "CREATE UNIQUE INDEX contacts_one_owner ON contacts ((true)) WHERE 'owner' = ANY(roles)"
    )
