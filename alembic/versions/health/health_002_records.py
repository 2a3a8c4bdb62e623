"""Source and history of measurements."""

from alembic import op

revision = "health_002"
down_revision = "health_001"


def upgrade() -> None:
    op.execute("SELECT make_record_table('measurements', '{type} {value} {unit}')")
