"""Verdicts of other clients: loads, degraded or dropped, with reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.skills.check.clients import CLIENTS, client_verdict
from butlers.skills.reader import read_skill
from support.skills import write_files, write_pack

GOOD = "---\nname: a-skill\ndescription: x\n---\nbody\n"
LOADS, DEGRADED, DROPPED = "loads", "degraded", "dropped"


def outcomes(folder: Path) -> dict[str, str]:
    reading = read_skill(folder)
    return {client: str(client_verdict(client, folder, reading).outcome) for client in CLIENTS}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # claude, codex, gemini, vscode, skills-ref
        (GOOD, (LOADS, LOADS, LOADS, LOADS, LOADS)),
        ("# Free\n\nText.\n", (LOADS, DROPPED, DROPPED, DROPPED, DROPPED)),
        (GOOD.replace("name: a-skill\n", ""), (LOADS, LOADS, DROPPED, DROPPED, DROPPED)),
        (GOOD.replace("description: x\n", ""), (LOADS, DROPPED, DROPPED, DROPPED, DROPPED)),
        (GOOD.replace(": x", ": x: y"), (DEGRADED, LOADS, DEGRADED, DROPPED, DROPPED)),
        (GOOD.replace(": x", ": x\n\ty"), (DEGRADED, DROPPED, DEGRADED, DROPPED, DROPPED)),
        (
            GOOD.replace("name: a-skill", "name: A Skill"),
            (DEGRADED, LOADS, DEGRADED, DROPPED, DROPPED),
        ),
        (GOOD.replace("name: a-skill", "name: other"), (DEGRADED, LOADS, LOADS, DROPPED, DROPPED)),
        (GOOD.replace(": x", f": {'x' * 1100}"), (LOADS, DEGRADED, LOADS, DROPPED, DROPPED)),
        (GOOD.replace(": x", f": {'x' * 1600}"), (DEGRADED, DEGRADED, LOADS, DROPPED, DROPPED)),
        (GOOD.replace(": x", ": x\nversion: 1.0.0"), (LOADS, LOADS, LOADS, LOADS, DROPPED)),
        (GOOD.replace(": x", ": x --- y"), (LOADS, LOADS, LOADS, LOADS, DEGRADED)),
    ],
)
def test_each_client_has_its_own_verdict(
    tmp_path: Path, content: str, expected: tuple[str, ...]
) -> None:
    folder = write_files(tmp_path / "a-skill", {"SKILL.md": content})
    assert outcomes(folder) == dict(zip(CLIENTS, expected, strict=True))


def test_long_name_linked_file_and_wrong_spelling(tmp_path: Path) -> None:
    long = "a" * 65
    folder = write_files(tmp_path / long, {"SKILL.md": GOOD.replace("a-skill", long)})
    assert outcomes(folder)["codex"] == DROPPED
    linked = write_files(tmp_path / "a-skill", {"real.md": GOOD})
    (linked / "SKILL.md").symlink_to("real.md")
    assert (outcomes(linked)["codex"], outcomes(linked)["claude"]) == (DROPPED, LOADS)
    spelled = write_files(tmp_path / "other" / "a-skill", {"skill.md": GOOD})
    assert set(outcomes(spelled).values()) == {DROPPED, LOADS}
    assert outcomes(spelled)["skills-ref"] == LOADS


def test_a_pack_without_skill_md_is_found_by_no_other_client(tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "social-media")
    assert set(outcomes(folder).values()) == {DROPPED}
    said = client_verdict("claude", folder, read_skill(folder))
    assert said.reasons == ("there is no SKILL.md",)


def test_every_outcome_but_loads_has_a_reason(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a-skill", {"SKILL.md": GOOD.replace("a-skill", "B")})
    reading = read_skill(folder)
    for client in CLIENTS:
        said = client_verdict(client, folder, reading)
        assert bool(said.reasons) == (said.outcome != LOADS)
