"""Module migrations: lookup and conflicts of chains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.db.migrations import migrate
from butlers.domain.module import FailurePhase
from support.postbox import ModuleHarness

MakeModules = Callable[..., ModuleHarness]

REVISION = (
    "from alembic import op\nrevision = '{table}_001'\ndown_revision = None\n"
    "def upgrade():\n    op.execute('CREATE TABLE {table} (id integer)')\n"
)


def labelled(name: str, label: str | None, folder: str | None = None) -> str:
    where = (
        ""
        if folder is None
        else (f"    def migration_directory(self):\n        return Path({folder!r})\n")
    )
    return (
        "from pathlib import Path\nfrom butlers.sdk import Module\n"
        f"class Made(Module):\n    name = {name!r}\n"
        f"    def migration_revisions(self):\n        return {label!r}\n{where}"
    )


async def run(harness: ModuleHarness, versions: Path) -> None:
    modules = harness.load()
    await modules.validate_config()

    async def apply(chain: object) -> None:
        harness.applied += await migrate(harness.database.login, [chain])  # type: ignore[list-item]

    await modules.migrate(apply, versions)


def write_chain(folder: Path, table: str) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{table}_001.py").write_text(REVISION.format(table=table))
    return folder


async def test_label_without_own_folder_uses_a_shipped_chain(
    make_modules: MakeModules, tmp_path: Path
) -> None:
    write_chain(tmp_path / "versions" / "ledger", "ledger_lines")
    harness = make_modules({"books": ""}, code={"books": labelled("books", "ledger")})
    await run(harness, tmp_path / "versions")
    assert harness.modules.healthy
    assert harness.applied == ["ledger_lines_001"]
    assert {"ledger_lines", "alembic_version_ledger"} <= await harness.tables()


async def test_no_label_means_no_migrations(make_modules: MakeModules, tmp_path: Path) -> None:
    harness = make_modules({"books": ""}, code={"books": labelled("books", None)})
    await run(harness, tmp_path)
    assert (harness.modules.healthy, harness.applied) == (True, [])


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("nowhere", "the migration chain 'nowhere' has no folder"),
        ('x"; DROP TABLE state', "is not a valid migration label"),
        ("core", "the migration chain 'core' is in"),
        ("shared", "the migration chain 'shared' is in"),
    ],
)
async def test_invalid_label_fails_the_module(
    make_modules: MakeModules, tmp_path: Path, label: str, reason: str
) -> None:
    folder = write_chain(tmp_path / "mine", "mine") if label in ("core", "shared") else None
    code = labelled("books", label, str(folder) if folder else None)
    harness = make_modules({"books": ""}, code={"books": code})
    await run(harness, tmp_path / "versions")
    (state,) = harness.modules.states()
    assert state.failure_phase is FailurePhase.MIGRATION
    assert reason in str(state.failure_error)
    assert harness.applied == []


async def test_a_label_has_one_folder_and_a_folder_one_label(
    make_modules: MakeModules, tmp_path: Path
) -> None:
    one, two = write_chain(tmp_path / "one", "one"), write_chain(tmp_path / "two", "two")
    code = {
        "first": labelled("first", "papers", str(one)),
        "second": labelled("second", "papers", str(two)),
        "third": labelled("third", "sheets", str(one)),
        "fourth": labelled("fourth", "papers", str(one)),  # the same chain again is fine
    }
    harness = make_modules(dict.fromkeys(code, ""), code=code)
    await run(harness, tmp_path / "versions")
    errors = {state.name: str(state.failure_error) for state in harness.modules.states()}
    assert errors["first"] == errors["fourth"] == "None"
    assert "the migration chain 'papers' is in" in errors["second"]
    assert "have two labels: 'papers' and 'sheets'" in errors["third"]
    assert harness.applied == ["one_001"]
