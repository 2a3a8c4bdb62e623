"""Order of migrations: core, the butler's own, then each module's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.migrations import shipped_versions
from butlers.db.provision import Provisioner
from butlers.db.upgrade import SCRIPTS
from butlers.wire.tokens import FleetKey
from support.postbox import GOOD, load_config, write_postbox

OWN = '''
"""The butler's own table."""

from alembic import op

revision = "postbox_001"
down_revision = None
branch_labels = ("postbox",)


def upgrade() -> None:
    op.execute("CREATE TABLE stamps (id uuid PRIMARY KEY)")
'''


def labels(directory: Path) -> set[str]:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("version_locations", str(directory))
    config.set_main_option("path_separator", "newline")
    revisions = ScriptDirectory.from_config(config).walk_revisions()
    return set().union(*(revision.branch_labels for revision in revisions))


@pytest.mark.scenario("S001-24")
async def test_chains_run_in_order_in_the_schema_with_their_labels(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> None:
    versions = tmp_path / "versions"
    shutil.copytree(shipped_versions() / "core", versions / "core")
    (versions / "postbox").mkdir()
    (versions / "postbox" / "postbox_001.py").write_text(OWN)
    directory = tmp_path / "postbox"
    postbox = f'db.name = "{database_name}"\ndb.schema = "postbox"'
    write_postbox(directory, GOOD, extra=postbox)
    butler = Butler(
        load_config(directory),
        settings=Settings(home),
        key=key,
        provisioner=provisioner,
        versions=versions,
    )

    with capture_logs() as logs:
        await butler.start()
    try:
        applied = [line for line in logs if line["event"] == "migration applied"]
        own = [line for line in applied if line["schema"] == "postbox"]
        assert list(dict.fromkeys(line["chain"] for line in own)) == [
            "core",
            "postbox",
            "email",
            "calendar",
        ]
        async with butler.database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'postbox'"
            )
        tables = {row["tablename"] for row in rows}
        assert {"state", "sessions", "stamps"} <= tables
        assert {
            "alembic_version",
            "alembic_version_postbox",
            "alembic_version_email",
            "alembic_version_calendar",
        } <= tables
    finally:
        await butler.stop()

    for name in ("core", "switchboard", "messenger", "health", "general", "shared"):
        assert labels(shipped_versions() / name) == {name}
    assert labels(versions / "postbox") == {"postbox"}
