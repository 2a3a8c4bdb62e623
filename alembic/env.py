"""Alembic's entry point. The connection, schema and version table are handed in by butlers.db.upgrade."""

from alembic import context

attributes = context.config.attributes


def remember(ctx, step, heads, run_args) -> None:
    attributes["applied"].append(step.up_revision_id)


context.configure(
    connection=attributes["connection"],
    version_table=attributes["version_table"],
    version_table_schema=attributes["schema"],
    on_version_apply=remember,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
