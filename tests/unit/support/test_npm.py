"""A set of npm programs is installed whole, once, and only as it is pinned."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support import npm
from support.npm import LOCK, SETS, WANTED, NpmSet

EXACT = re.compile(r"\d+\.\d+\.\d+")
NAMES = sorted(path.parent.name for path in SETS.glob(f"*/{WANTED}"))
# Stands for npm: notes that it ran, makes one program, and fails while "broken" lies beside its log.
FAKE = """\
#!/bin/sh
echo "$@" >> {log}
mkdir -p node_modules/tool-linux
printf '#!/bin/sh\\necho tool\\n' > node_modules/tool-linux/tool
test ! -e {broken}
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File to which the fake npm writes each of its runs."""
    folder = tmp_path / "path"
    folder.mkdir()
    log = tmp_path / "runs"
    program = folder / "npm"
    program.write_text(FAKE.format(log=log, broken=tmp_path / "broken"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return log


@pytest.fixture
def tools(tmp_path: Path) -> NpmSet:
    source = tmp_path / "tools"
    source.mkdir()
    (source / WANTED).write_text(json.dumps({"programs": {"tool": "tool-*/tool"}}))
    (source / LOCK).write_text("{}")
    return NpmSet(source, tmp_path / "cache")


def read(name: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SETS / name / file).read_text())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_pinned_to_exact_versions_with_hashes_and_names_no_registry(name: str) -> None:
    wanted = read(name, WANTED)
    for kind in ("dependencies", "optionalDependencies", "overrides"):
        assert all(EXACT.fullmatch(version) for version in wanted.get(kind, {}).values())
    packages = {path: entry for path, entry in read(name, LOCK)["packages"].items() if path}
    assert packages
    assert [path for path, entry in packages.items() if "integrity" not in entry] == []
    assert [path for path, entry in packages.items() if "resolved" in entry] == []


def test_a_set_is_installed_once_without_its_scripts(log: Path, tools: NpmSet) -> None:
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(tools.install) for _ in range(4)]:
            done.result()

    (run,) = log.read_text().splitlines()
    assert run.startswith("ci --ignore-scripts ")
    assert subprocess.check_output([tools.programs / "tool"]) == b"tool\n"


def test_an_install_that_failed_leaves_nothing_behind_that_counts(log: Path, tools: NpmSet) -> None:
    broken = log.with_name("broken")
    broken.touch()
    with pytest.raises(subprocess.CalledProcessError):
        tools.install()
    assert not tools.folder.exists()

    broken.unlink()
    tools.install()

    assert [path.name for path in tools.programs.iterdir()] == ["tool"]


def test_another_lock_is_another_folder(log: Path, tools: NpmSet) -> None:
    tools.install()
    first = tools.folder
    (tools.source / LOCK).write_text('{"newer": true}')
    tools.install()

    assert tools.folder != first
    assert first.exists()


def test_without_npm_a_test_fails_unless_the_person_skips_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    monkeypatch.delenv(npm.SKIP, raising=False)
    with pytest.raises(pytest.fail.Exception, match="npm is not installed"):
        npm.installed("mcp")

    monkeypatch.setenv(npm.SKIP, "1")
    with pytest.raises(pytest.skip.Exception, match="npm is not installed"):
        npm.installed("mcp")
