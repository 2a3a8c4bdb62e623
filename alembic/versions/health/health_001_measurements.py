"""Measurements: one row per measured value."""

from alembic import op

revision = "health_001"
down_revision = None
branch_labels = ("health",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE measurements (
        id           uuid PRIMARY KEY,
        type         text NOT NULL,
        value        numeric NOT NULL,
        unit         text,
        notes        text,
        measured_at  timestamptz NOT NULL,
        created_at   timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("CREATE INDEX measurements_latest ON measurements (type, measured_at DESC)")
