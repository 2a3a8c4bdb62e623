"""Encrypted credentials, shared by all butlers. A butler's role sees the rows it may use and writes none.

The administrator owns the table. Which role sees which scope is a policy per role, made with the role
(butlers.db.provision); without one a role sees no row at all.
"""

from alembic import op

revision = "shared_001"
down_revision = None
branch_labels = ("shared",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE secrets (
        scope        text NOT NULL CHECK (scope ~ '^[a-z][a-z0-9-]{0,39}$'),
        name         text NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_.-]{0,127}$'),
        nonce        bytea NOT NULL,
        ciphertext   bytea NOT NULL,
        key_id       text NOT NULL,
        category     text NOT NULL DEFAULT 'general',
        description  text NOT NULL DEFAULT '',
        created_at   timestamptz NOT NULL DEFAULT now(),
        updated_at   timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (scope, name)
    )
    """)
    op.execute("ALTER TABLE secrets ENABLE ROW LEVEL SECURITY")
