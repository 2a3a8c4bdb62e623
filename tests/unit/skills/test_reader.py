"""Reading a skill from a folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from butlers.skills.reader import read_skill
from support.skills import write_files, write_pack, write_skill_md


@pytest.mark.scenario("S000-13")
def test_folder_may_hold_scripts_and_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "morning-briefing"
    write_files(
        folder,
        {"SKILL.md": "# Briefing\n\nThe day's plan.\n", "run.py": "print(1)\n", "t/a.txt": "x"},
    )
    reading = read_skill(folder)
    assert reading.skill is not None
    assert reading.skill.name == "morning-briefing"
    assert reading.skill.has_skill_md
    os.remove(folder / "SKILL.md")
    assert read_skill(folder).codes() == {"skill-missing"}


@pytest.mark.scenario("S000-14")
def test_a_folder_with_only_skill_md_is_a_valid_skill_of_instructions(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "inbox-triage", {"SKILL.md": "Call `inbox_list`, then sort.\n"})
    reading = read_skill(folder)
    assert reading.skill is not None
    assert reading.skill.instructions == "Call `inbox_list`, then sort."
    assert reading.skill.scripts == ()
    assert all(found.severity == "warning" for found in reading.diagnostics)


@pytest.mark.scenario("S000-15")
def test_folder_without_skill_md_is_not_a_skill(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "broken-skill", {"run.py": "print(1)"})
    reading = read_skill(folder)
    assert reading.skill is None  # nothing can be executed
    assert [found.code for found in reading.diagnostics] == ["skill-missing"]
    assert reading.diagnostics[0].severity == "error"


@pytest.mark.scenario("S000-18")
def test_instructions_are_read_unchanged(tmp_path: Path) -> None:
    body = "# Purpose\nP\n\n## Steps\n1. a\n2. b\n\n## Input and output\nJSON\n\n## Examples\n- x → y\n"
    folder = write_files(tmp_path / "a-skill", {"SKILL.md": body})
    skill = read_skill(folder).skill
    assert skill is not None
    assert skill.body == body
    assert skill.description == "P"


@pytest.mark.scenario("S001-16")
@pytest.mark.parametrize("where", ["health/skills", "shared/skills"])
def test_a_skill_of_the_roster_has_yaml_fields_and_markdown(tmp_path: Path, where: str) -> None:
    front = "name: log-weight\ndescription: Logs weight.\nversion: 1.2.0\ntrigger_patterns:\n- weight .*\n"
    body = "\n## Guide\n\nUse `measurement_log`.\n"
    folder = write_skill_md(tmp_path / "roster" / where / "log-weight", front, body)
    skill = read_skill(folder).skill
    assert skill is not None
    assert (skill.name, skill.description, skill.version) == ("log-weight", "Logs weight.", "1.2.0")
    assert skill.trigger_patterns == ("weight .*",)
    assert skill.body == body


@pytest.mark.scenario("S003-01")
def test_a_pack_is_one_skill_and_moves_by_copying(tmp_path: Path) -> None:
    files = {
        "context/instructions.md": "# How\n",
        "scripts/post.sh": "#!/bin/sh\n",
        "mcp/server.ts": "//\n",
        ".env.example": "API_KEY=\n",
        "README.md": "For people.\n",
    }
    folder = write_pack(
        tmp_path / "social-media",
        files,
        context=["context/instructions.md"],
        scripts=["scripts/post.sh"],
        envVars=["API_KEY"],
    )
    reading = read_skill(folder)
    assert reading.diagnostics == ()
    copied = read_skill(Path(shutil.copytree(folder, tmp_path / "elsewhere" / "social-media")))
    assert copied.skill == reading.skill
    assert copied.skill is not None
    assert copied.skill.has_manifest


def test_manifest_wins_over_skill_md(tmp_path: Path) -> None:
    folder = write_pack(
        tmp_path / "social-media",
        {"SKILL.md": "---\nname: other\ndescription: y\nversion: 9.9.9\n---\nInstructions.\n"},
    )
    skill = read_skill(folder).skill
    assert skill is not None
    assert (skill.name, skill.version, skill.body) == ("social-media", "2.1.0", "Instructions.\n")


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD", "sKiLl.md"])
def test_other_spellings_of_skill_md_are_read_with_a_warning(tmp_path: Path, name: str) -> None:
    folder = write_files(tmp_path / "a-skill", {name: "---\nname: a-skill\ndescription: x\n---\nb"})
    reading = read_skill(folder)
    assert reading.skill is not None
    assert reading.codes() == {"skill-file-name"}


def test_link_outside_the_skill_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    folder = tmp_path / "a-skill"
    folder.mkdir()
    (folder / "SKILL.md").symlink_to(tmp_path / "id_rsa")
    reading = read_skill(folder)
    assert reading.skill is None
    assert reading.codes() == {"tree-link-leaves"}


def test_a_link_into_the_shared_skills_is_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    write_skill_md(shared / "a-skill", "name: a-skill\ndescription: x\n")
    folder = tmp_path / "a-skill"
    folder.mkdir()
    (folder / "SKILL.md").symlink_to(shared / "a-skill" / "SKILL.md")
    assert read_skill(folder, shared=shared).skill is not None


def test_named_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    folder = tmp_path / "a-skill"
    folder.mkdir()
    os.mkfifo(folder / "SKILL.md")
    assert read_skill(folder).codes() == {"skill-unreadable"}


def test_oversized_file_is_refused(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a-skill", {"SKILL.md": b"x" * (1024 * 1024 + 1)})
    assert read_skill(folder).codes() == {"skill-too-large"}


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    assert read_skill(tmp_path / "nowhere").codes() == {"skill-unreadable"}


@pytest.mark.parametrize(
    "document",
    [
        '{"manifest_version": 3, "name": "Extension", "version": "1"}',
        '{"id": "/app", "name": "App", "icons": []}',
        '{"name": "x", "version": "1.0.0", "scripts": {"build": "tsc"}, "dependencies": {}}',
    ],
    ids=["browser", "web-app", "npm"],
)
def test_manifest_of_another_tool_does_not_veto_a_skill_md(tmp_path: Path, document: str) -> None:
    folder = write_skill_md(tmp_path / "a-skill", "name: a-skill\ndescription: x\n")
    write_files(folder, {"manifest.json": document})
    reading = read_skill(folder)
    assert reading.skill is not None
    assert (reading.skill.name, reading.skill.has_manifest) == ("a-skill", False)
    assert [found.code for found in reading.diagnostics] == ["manifest-foreign"]


def test_manifest_without_skill_md_is_always_read_as_a_pack(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a-skill", {"manifest.json": '{"name": "x"}'})
    codes = {found.code for found in read_skill(folder).diagnostics}
    assert "manifest-field-missing" in codes


def test_manifest_that_names_pack_fields_is_checked_beside_a_skill_md(tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "a-skill", "name: a-skill\ndescription: x\n")
    write_files(folder, {"manifest.json": '{"id": "a-skill", "owner": "me"}'})
    entries = {found.entry for found in read_skill(folder).diagnostics}
    assert {"version", "description"} <= entries
