"""Contract of every format: any bytes are read, and a written skill reads back unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import InvalidSkill
from butlers.skills.findings import RULES, Findings
from butlers.skills.formats import manifest, skill_md
from butlers.skills.formats.base import SkillFile, SkillFormat, decode
from butlers.skills.reader import read_skill
from butlers.skills.skill import SkillSpec
from support.skills import writable_skills, write_files

FORMATS = [skill_md.FORMAT, manifest.FORMAT]
BITS = (
    b"---\n", b"---", b"...", b"\n", b"\r\n", b": ", b"name: ", b"description: ", b"metadata:\n",
    b"  a: 1\n", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"!!python/x ", b"\t", b"\x00", b"\xff",
    b"\xef\xbb\xbf", b"|", b">", b"'", b'"', b"# x\n", b"- ", b"? ", b"<<: ", b"\xe2\x80\x8b",
    b"version: 1.10\n", b"allowed-tools: a, b\n", b"name: 8004\n", b"\x85", b"\xc2\x85",
)  # fmt: skip
JSON_BITS = (
    b"{", b"}", b"[", b"]", b'"id"', b'"context"', b'"mcpServers"', b":", b",", b'"../x"', b"1e999",
    b"null", b"NaN", b'"\\ud800"', b"\\uDfff", b"\\ud83d\\ude00", b'"metadata"', b'"envVars"',
    b"\x00", b"9" * 5000, b'"a-b@^1"',
)  # fmt: skip


@pytest.mark.parametrize("form", FORMATS, ids=["skill_md", "manifest"])
@settings(deadline=None, max_examples=150)
@given(content=st.binary(max_size=300) | st.lists(st.sampled_from(BITS + JSON_BITS)).map(b"".join))
@example(content=b"---\n" + b"[" * 60_000 + b"\n---\n")
@example(content=b"---\n" + b"- " * 30_000 + b"\n---\n")
@example(content=b"---\na: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n---\n")
@example(content=b"[" * 100_000)
@example(content=b'{"a":' * 50_000)
@example(content=b'{"x":' + b"[" * 500 + b"]" * 500 + b"}")
@example(content=b"\xff\xfe-\x00-\x00-\x00")
@example(content=b"---\n\xe2\x80\xa8a: 1\rb: 2\n\xc2\x85c: [\n---\n")
@example(content=b'---\nmetadata:\n  butlers.pack: \'{"name": 5, "x": 1}\'\n---\n')
def test_any_bytes_give_a_skill_or_a_diagnostic(form: SkillFormat, content: bytes) -> None:
    reading = form.read(SkillFile(Path("some-skill") / form.file_names[0], content))
    assert reading.skill is not None or reading.diagnostics
    assert reading.codes() <= set(RULES)
    assert is_utf8(reading.skill)
    lines = decode(content, Findings(Path("x"))).split("\n")
    for found in reading.diagnostics:
        assert "\n" not in found.message
        assert found.line is not None, found
        assert found.column is not None, found
        assert 1 <= found.line <= len(lines), found
        assert 1 <= found.column <= len(lines[found.line - 1]) + 1, found


def is_utf8(skill: SkillSpec | None) -> bool:
    """Return True if every string in it can be encoded."""
    return not any("\ud800" <= letter <= "\udfff" for letter in str(told(skill)))


def told(value: object) -> object:
    """All texts in it as they are: repr would spell out what is not printable."""
    if is_dataclass(value):
        return told([getattr(value, one.name) for one in fields(value)])
    if isinstance(value, Mapping):
        return told([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return "".join(str(told(item)) for item in value)
    return value


# What an escape in JSON can say: also halves of characters, and pairs of halves that are one.
LETTERS = st.text(
    st.sampled_from("aé😀\ud800\udbff\udc00\udfff\u200b") | st.characters(), max_size=8
)
VALUES = LETTERS | st.lists(LETTERS, max_size=2) | st.dictionaries(LETTERS, LETTERS, max_size=2)
DOCUMENTS = st.dictionaries(
    st.sampled_from((*manifest.KNOWN, "body", "extra")) | LETTERS, VALUES, max_size=6
)


@settings(deadline=None, max_examples=150)
@given(document=DOCUMENTS, description=LETTERS, patterns=st.lists(LETTERS, max_size=2))
@example(document={"owner": "\ud800"}, description="", patterns=[])
@example(
    document=dict.fromkeys(["\ud800", "\ud801"], "x"), description="\udfff", patterns=["\udc00"]
)
def test_surrogate_escapes_are_replaced_and_reported(
    document: dict[str, object], description: str, patterns: list[str]
) -> None:
    pack, triggers = (json.dumps(said).replace("'", "''") for said in (document, patterns))
    front = f"description: {json.dumps(description)}\ntrigger_patterns: '{triggers}'\n"
    files = {
        manifest.FORMAT: json.dumps(document),
        skill_md.FORMAT: f"---\n{front}metadata:\n  butlers.pack: '{pack}'\n---\nDo it.\n",
    }
    for form, written in files.items():
        reading = form.read(SkillFile(Path("some-skill") / form.file_names[0], written.encode()))
        assert is_utf8(reading.skill)
        if "\ufffd" in str(told(reading.skill)) and "\\ufffd" not in written:
            assert reading.codes() & {"skill-half-character", "frontmatter-not-yaml"}


@pytest.mark.parametrize("form", FORMATS, ids=["skill_md", "manifest"])
@settings(deadline=None, max_examples=60)
@given(skill=writable_skills)
def test_written_skill_reads_back_unchanged(form: SkillFormat, skill: SkillSpec) -> None:
    proper = form.file_names[0]
    content = form.render(skill)[proper]
    read = form.read(SkillFile(Path(skill.name) / proper, content)).skill
    assert read is not None
    expected = skill if form is skill_md.FORMAT else skill.evolve(body="")
    assert read.evolve(has_manifest=False, has_skill_md=False) == expected


@settings(deadline=None, max_examples=25)
@given(skill=writable_skills)
def test_skill_survives_conversion_to_a_pack_and_back(
    tmp_path_factory: pytest.TempPathFactory, skill: SkillSpec
) -> None:
    folder = tmp_path_factory.mktemp("pack") / skill.name
    write_files(folder, {**manifest.FORMAT.render(skill), **skill_md.FORMAT.render(skill)})
    read = read_skill(folder).skill
    assert read is not None
    assert read.has_manifest
    assert read.has_skill_md
    again = read.evolve(has_manifest=False, has_skill_md=False)
    assert again == skill
    told = skill_md.FORMAT.render(again)["SKILL.md"]
    back = skill_md.FORMAT.read(SkillFile(folder / "SKILL.md", told)).skill
    assert back == skill.evolve(has_skill_md=True)


@pytest.mark.parametrize(
    "skill",
    [
        SkillSpec("Bad Name", "x"),
        SkillSpec("--", "x"),
        SkillSpec("a", ""),
        SkillSpec("a", "x" * 1025),
        SkillSpec("a", "x", version="1.0"),
        SkillSpec("a", "x", context=("../secret",)),
        SkillSpec("a", "x", scripts=("/etc/passwd",)),
        SkillSpec("a", "x", env_vars=("A-B",)),
        SkillSpec("a", "x", dependencies=("b@@1",)),
        SkillSpec("a", "x", metadata={"version": "1"}),
        SkillSpec("a", "x", extra={"name": "b"}),
        SkillSpec("a", "x", body="\ud800"),
        SkillSpec("a", "x", allowed_tools=("Read Write",)),
    ],
)
@pytest.mark.parametrize("form", FORMATS, ids=["skill_md", "manifest"])
def test_skill_that_would_not_read_back_is_not_written(form: SkillFormat, skill: SkillSpec) -> None:
    with pytest.raises(InvalidSkill):
        form.render(skill.evolve(owner="me", version=skill.version or "1.0.0"))
