"""A sixth domain butler, made by following CONTRIBUTING.md literally."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import UUID

import pytest

from butlers.config.settings import Settings
from butlers.daemon.registration import registration_of
from butlers.daemon.roster_check import check_roster
from butlers.domain.diagnostic import Severity
from butlers.wire.codec import encode
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text().split("### A butler\n")[1].split("\n### ")[0]
FILE = re.compile(
    r"`(roster/garden/[^`]+)`[^`]*?(?:`[^`]*`[^`]*?)*:\n\n   ```\w+\n(.*?)\n   ```", re.DOTALL
)
COMMANDS = re.findall(r"^   ```bash\n(.*?)^   ```$", TEXT, re.MULTILINE | re.DOTALL)


def run(line: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    words = line.split()
    if words[0] == "butlers":
        words = [sys.executable, "-m", "butlers.cli.main", *words[1:]]
    env = {"PYTHONPATH": str(ROOT / "src"), "BUTLERS_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def garden(tmp_path: Path, home: Path) -> Path:
    """The folder of the new butler, after all steps."""
    shutil.copytree(ROOT / "roster" / "shared", tmp_path / "roster" / "shared")
    init, check = (dedent(block).strip().splitlines() for block in COMMANDS)
    files = FILE.findall(TEXT)
    assert len(files) == 7
    steps = [*init, *files, *check]
    for step in steps:
        if isinstance(step, str):
            done = run(step, tmp_path, home)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            path = tmp_path / step[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(f"{step[1]}\n"))
    return tmp_path / "roster" / "garden"


@pytest.mark.scenario("S001-28")
async def test_new_butler_registers_answers_and_leaves_without_affecting_others(
    garden: Path,
    home: Path,
    switchboard: InProcessButler,
    make_butler: MakeButler,
    database_name: str,
) -> None:
    found = check_roster(garden.parent, Settings(home))
    assert [str(one) for one in found if one.severity is Severity.ERROR] == []
    health = make_butler("health")
    await health.start()
    async with switchboard.peer("health") as peer:
        await peer.call("register", {"registration": encode(registration_of(health.butler))})

    file = garden / "butler.toml"
    text = file.read_text().replace("port = 40107", "port = 0")
    text = text.replace('name = "butlers"', f'name = "{database_name}"')
    url = f'advertise = true\nurl = "{switchboard.butler.url}"'
    file.write_text(text.replace("advertise = true", url))
    made = InProcessButler(garden, home, switchboard.key, switchboard.provisioner)
    butler = made.make()
    await butler.start()
    try:
        assert butler.registrar is not None
        await asyncio.wait_for(butler.registrar.registered.wait(), 30)
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert any("heartbeat" in name for name in tasks)
        assert any("registrar" in name for name in tasks)
        assert await say(switchboard, "garden", "planted basil") == "Planted: basil, today."
        assert await say(switchboard, "garden", "undo") == "Undone: basil removed."
        assert await made.rows("SELECT FROM plants") == []
    finally:
        await butler.stop()
    assert await say(switchboard, "health", "weight 80 kg") == "Logged: weight 80 kg."


async def say(switchboard: InProcessButler, butler: str, text: str) -> str:
    async with switchboard.owner() as owner:
        accepted = await owner.call("ingest", envelope(text))
    request_id = UUID(accepted["request_id"])

    async def reply() -> list[dict[str, Any]]:
        return await switchboard.rows(
            f"SELECT payload ->> 'message' AS text FROM {butler}.queue_items"
            " WHERE queue = 'notify' AND payload ->> 'request_id' = $1",
            str(request_id),
        )

    (row,) = await until(f"a reply to {text!r}", reply)
    return str(row["text"])
