"""The capability diff: what a skill may read, write, run, reach and spend, and what an update changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from butlers.skills.install.capabilities import Capabilities, capabilities_of
from butlers.skills.install.permissions import Permission, PermissionState, permissions_of
from butlers.skills.reader import read_skill
from support.skills import write_pack, write_skill_md
from support.skills_cli import Run

SAME, NEW, CHANGED, GONE = PermissionState


def capabilities(folder: Path, script: str = "echo\n", **fields: Any) -> Capabilities:
    files: dict[str, str | bytes] = dict.fromkeys(fields.get("scripts", ()), script)
    skill = read_skill(write_pack(folder, files, owner="me", **fields)).skill
    assert skill is not None
    return capabilities_of(folder, skill)


def told(found: tuple[Permission, ...]) -> set[tuple[str, str]]:
    return {(one.verb, one.what) for one in found}


def test_skill_of_text_alone_may_do_next_to_nothing(tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "a", "name: a\ndescription: Helps.\n", "Text. " * 100)
    skill = read_skill(folder).skill
    assert skill is not None
    assert told(permissions_of(capabilities_of(folder, skill))) == {
        ("read", "its own files"),
        ("write", "nothing"),
        ("run", "nothing"),
        ("reach", "nothing on the network"),
        ("spend", "about 3 tokens in each session that lists it, 150 more when it is opened"),
    }


def test_every_change_of_an_update_is_marked(tmp_path: Path) -> None:
    before = capabilities(
        tmp_path / "1",
        scripts=["scripts/a.sh", "scripts/b.sh"],
        envVars=["OLD_KEY"],
        mcpServers=[{"name": "m", "type": "local", "command": "node", "args": ["a.js"]}],
    )
    after = capabilities(
        tmp_path / "2",
        "rm -r x\n",
        scripts=["scripts/a.sh", "scripts/c.sh"],
        envVars=["NEW_KEY"],
        network=True,
        mcpServers=[{"name": "m", "type": "remote", "url": "https://mcp.example.com/"}],
        allowedTools=["Read"],
    )
    found = permissions_of(after, before)
    by_state = {
        state: {f"{one.verb} {one.what}" for one in found if one.state is state}
        for state in PermissionState
    }
    assert by_state[CHANGED] == {"run the script scripts/a.sh"}
    assert by_state[NEW] == {
        "read the variable NEW_KEY",
        "spend whatever NEW_KEY pays for",
        "run the script scripts/c.sh",
        "reach the MCP server m: https://mcp.example.com/",
        "reach the whole network",
        "ask for the tool Read",
    }
    assert by_state[GONE] == {
        "read the variable OLD_KEY",
        "spend whatever OLD_KEY pays for",
        "run the script scripts/b.sh",
        "run the MCP server m: node a.js",
    }
    assert len(by_state[SAME]) == 4


def test_install_and_update_print_the_difference(run: Run, tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "social-media", owner="me", version="1.0.0")
    first = run("install", folder, "--yes")
    assert "  may write   nothing" in first.err
    assert "changes since" not in first.err
    write_pack(folder, owner="me", version="1.1.0", network=True)
    ran = run("install", folder, "--yes", "--json")
    (document,) = ran.json
    assert (document["version"], document["before"], document["installed"]) == (
        "1.1.0",
        "1.0.0",
        True,
    )
    assert [one for one in document["permissions"] if one["state"] != "same"] == [
        {"verb": "reach", "what": "the whole network", "state": "new"}
    ]
    write_pack(folder, owner="me", version="1.2.0")
    updated = run("update", folder)
    assert "- may reach   the whole network" in updated.err
    assert "changes since 1.1.0" in updated.err
