"""Comparison with the reference implementation; the table explains every difference."""

from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

from butlers.skills.check.clients import ClientOutcome, client_verdict
from butlers.skills.reader import read_skill
from support.skills import write_files

PAGE = Path(__file__).parents[3] / "docs" / "skills-vs-reference.md"
BODY = "\n# Use\n\nDo it.\n"


def front(*lines: str) -> bytes:
    return "\n".join(
        ["---", "name: a-skill", "description: What it is.", *lines, "---", BODY]
    ).encode()


# Both accept, and read the same name and description; or both find the same fault.
AGREED = {
    "minimal": front(),
    "all fields": front(
        "license: MIT", "compatibility: git", "allowed-tools: Read", "metadata:", "  a: b"
    ),
    "folded text": b"---\nname: a-skill\ndescription: >\n  one\n  two\n---\nb",
    "quoted text": b"---\nname: \"a-skill\"\ndescription: 'it: x'\n---\nb",
    "crlf": front().replace(b"\n", b"\r\n"),
    "number as text": b"---\nname: a-skill\ndescription: 007\n---\nb",
    "nested metadata": front("metadata:", "  a:", "    b: c"),
    "tools as block list": front("allowed-tools:", "- Read", "- Write"),
    "comment": front("# why"),
    "no body": b"---\nname: a-skill\ndescription: x\n---\n",
    "empty license": front("license:"),
}
# name: (content, why we take it all the same)
DIFFERENT = {
    "byte order mark": (b"\xef\xbb\xbf" + front(), "editors write it, and it is invisible"),
    "blank line first": (b"\n" + front(), "the meaning is not in doubt"),
    "flow style metadata": (
        front('metadata: {"a": {"b": ["c"]}}'),
        "it is YAML; a fifth of public skills write it",
    ),
    "flow style list": (front("allowed-tools: [Read, Write]"), "it is YAML, and means a list"),
    "anchor and alias": (
        front("license: &l MIT", "compatibility: *l"),
        "it is YAML; texts only, bounded",
    ),
    "tag": (front("license: !!str MIT"), "tags are ignored, never constructed"),
    "duplicate key": (front("description: The last."), "the last one counts, and is reported"),
    "unquoted colon": (
        b"---\nname: a-skill\ndescription: Use when: asked\n---\nb",
        "the most common fault of public skills; requoted and reported",
    ),
    "control character": (
        front("license: M\x01IT"),
        "left out and reported; the reference stops with an AttributeError",
    ),
    "not utf-8": (
        front("license: caf\xe9").decode().encode("latin-1"),
        "replaced and reported; the reference stops with a UnicodeDecodeError",
    ),
    "no front matter": (b"# A skill\n\nDoes it.\n", "free-form skills of a butler's own folder"),
    "unclosed": (
        b"---\nname: a-skill\ndescription: x\n\n# Use\n",
        "the fields end at the blank line",
    ),
    "no name": (b"---\ndescription: x\n---\nb", "the folder's name is used"),
    "no description": (b"---\nname: a-skill\n---\nSays it.\n", "the first paragraph is used"),
    "version at the top": (front("version: 1.0.0"), "a third of the public skills write it there"),
    "unknown field": (front("author: me"), "half of the public skills have one; kept and reported"),
    "upper case": (
        front().replace(b"a-skill", b"A-Skill"),
        "kept and reported; never written or registered",
    ),
    "underscore": (
        front().replace(b"a-skill", b"a_skill"),
        "kept and reported; never written or registered",
    ),
    "two hyphens": (
        front().replace(b"a-skill", b"a--b"),
        "kept and reported; never written or registered",
    ),
    "name too long": (
        front().replace(b"a-skill", b"a" * 65),
        "kept and reported; never written or registered",
    ),
    "other folder": (front().replace(b"a-skill", b"other"), "kept and reported"),
    "long description": (front().replace(b"What it is.", b"x" * 1025), "kept and reported"),
    "long compatibility": (front("compatibility: " + "x" * 501), "kept and reported"),
    "no front matter fields": (
        b"---\n---\nSays it.\n",
        "folder's name and first paragraph are used",
    ),
    "a list as front matter": (
        b"---\n- a\n- b\n---\nSays it.\n",
        "folder's name and first paragraph are used",
    ),
    "tab": (
        b"---\nname: a-skill\n\tx: 1\ndescription: y\n---\nb",
        "read line by line and reported",
    ),
}
# Both accept, and the reference reads less.
CUT = {
    "dashes in a value": (
        b"---\nname: a-skill\ndescription: foo --- bar\n---\nb",
        "the reference cuts the description at the dashes",
    ),
    "glued closing line": (
        b"---\nname: a-skill\ndescription: x\n---# Head\n",
        "both split there; we report it",
    ),
    "unicode name": (
        "---\nname: навык\ndescription: x\n---\nb".encode(),
        "the text of the standard has a to z; kept and reported",
    ),
}


def folder_of(tmp_path: Path, content: bytes) -> Path:
    name = "навык" if "навык".encode() in content else "a-skill"
    return write_files(tmp_path / name, {"SKILL.md": content})


def reference_accepts(folder: Path) -> bool:
    try:
        return skills_ref.validate(folder) == []
    except (AttributeError, UnicodeDecodeError):
        return False


@pytest.mark.parametrize("name", AGREED)
def test_accepted_by_the_reference_is_read_the_same(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, AGREED[name])
    assert reference_accepts(folder)
    theirs = skills_ref.read_properties(folder)
    reading = read_skill(folder)
    assert reading.skill is not None
    assert (reading.skill.name, reading.skill.description) == (theirs.name, theirs.description)
    assert client_verdict("skills-ref", folder, reading).outcome is ClientOutcome.LOADS


@pytest.mark.parametrize("name", DIFFERENT)
def test_rejected_by_the_reference_is_read_with_a_finding(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, DIFFERENT[name][0])
    assert not reference_accepts(folder)
    reading = read_skill(folder)
    assert reading.skill is not None
    assert reading.skill.description
    assert reading.diagnostics or reading.traits or name == "version at the top"
    said = client_verdict("skills-ref", folder, reading)
    assert said.outcome is ClientOutcome.DROPPED
    assert said.reasons


@pytest.mark.parametrize("name", CUT)
def test_loss_in_the_reference_is_predicted(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, CUT[name][0])
    assert reference_accepts(folder)
    theirs = skills_ref.read_properties(folder)
    reading = read_skill(folder)
    assert reading.skill is not None
    lost = reading.skill.description != theirs.description
    said = client_verdict("skills-ref", folder, reading)
    assert said.outcome is (
        ClientOutcome.LOADS if name == "unicode name" else ClientOutcome.DEGRADED
    )
    assert lost == (name == "dashes in a value")


def test_the_page_has_a_row_for_every_difference() -> None:
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2:
            rows[cells[0]] = cells[1]
    told = {name: why for name, (_, why) in (DIFFERENT | CUT).items()}
    assert {name: rows.get(name) for name in told} == told


def test_empty_folder_is_refused_by_both(tmp_path: Path) -> None:
    assert not reference_accepts(tmp_path)
    assert read_skill(tmp_path).skill is None
