"""Reading SKILL.md: accepted input, repairs, and the report of each repair."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from butlers.domain.diagnostic import Diagnostic
from butlers.skills.formats import yaml_nodes
from butlers.skills.formats.base import Reading, SkillFile
from butlers.skills.formats.skill_md import FORMAT
from butlers.skills.skill import SkillSpec


def read(content: str | bytes, folder: str = "a-skill") -> Reading:
    data = content.encode() if isinstance(content, str) else content
    return FORMAT.read(SkillFile(Path(folder) / "SKILL.md", data))


def skill_of(reading: Reading) -> SkillSpec:
    assert reading.skill is not None
    return reading.skill


def only(reading: Reading, code: str) -> Diagnostic:
    found = [diagnostic for diagnostic in reading.diagnostics if diagnostic.code == code]
    assert len(found) == 1, reading.diagnostics
    return found[0]


def test_standard_file_gives_no_diagnostics() -> None:
    reading = read(
        "---\nname: a-skill\ndescription: What it does, and when.\nlicense: MIT\n"
        "compatibility: needs git\nallowed-tools: Bash(git add *) Read\n"
        "metadata:\n  author: me\n---\n\n# Use\n\nDo it.\n"
    )
    assert reading.diagnostics == ()
    assert skill_of(reading) == SkillSpec(
        name="a-skill",
        description="What it does, and when.",
        license="MIT",
        compatibility="needs git",
        allowed_tools=("Bash(git add *)", "Read"),
        metadata={"author": "me"},
        body="\n# Use\n\nDo it.\n",
        has_skill_md=True,
    )


@pytest.mark.parametrize(
    "front",
    [
        'version: 1.10.0\ntrigger_patterns: ["weight .*", "log .*"]\n',
        'metadata:\n  version: "1.10.0"\n  trigger_patterns: \'["weight .*", "log .*"]\'\n',
        "metadata:\n  version: 1.10.0\n  trigger_patterns:\n  - weight .*\n  - log .*\n",
    ],
)
def test_version_and_triggers_are_read_at_the_top_and_under_metadata(front: str) -> None:
    skill = skill_of(read(f"---\nname: a-skill\ndescription: x\n{front}---\nbody"))
    assert skill.version == "1.10.0"
    assert skill.trigger_patterns == ("weight .*", "log .*")
    assert skill.metadata == {}


def test_top_level_version_overrides_metadata() -> None:
    reading = read(
        "---\nname: a-skill\ndescription: x\nversion: 2.0.0\nmetadata: {version: 1.0.0}\n---\nb"
    )
    assert skill_of(reading).version == "2.0.0"
    assert only(reading, "field-twice").entry == "version"


def test_number_stays_a_string_as_written() -> None:
    skill = skill_of(read("---\nname: 8004\ndescription: 007\nversion: 1.10\n---\nbody", "8004"))
    assert (skill.name, skill.description, skill.version) == ("8004", "007", "1.10")


def test_unquoted_colons_are_requoted_and_reported_with_their_line() -> None:
    reading = read(
        "---\nname: a-skill\ndescription: Use when: the person asks\nlicense: MIT\n---\nbody"
    )
    assert skill_of(reading).description == "Use when: the person asks"
    assert skill_of(reading).license == "MIT"
    assert (
        only(reading, "frontmatter-not-yaml").line,
        only(reading, "frontmatter-not-yaml").column,
    ) == (3, 22)
    assert only(reading, "frontmatter-requoted").line == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("**bold** text", "**bold** text"),
        ("`code` first", "`code` first"),
        ("@mention first", "@mention first"),
        ("[draft] a: b", "[draft] a: b"),
        ("100% sure: yes", "100% sure: yes"),
        ('"bad \\q escape: x"', "bad \\q escape: x"),
        ("> on the same line", "> on the same line"),
    ],
)
def test_values_that_are_invalid_yaml_are_read_as_written(value: str, expected: str) -> None:
    reading = read(f"---\nname: a-skill\ndescription: {value}\n---\nbody")
    assert skill_of(reading).description == expected
    assert {"frontmatter-requoted", "frontmatter-not-yaml"} <= reading.codes()


def test_front_matter_that_quoting_cannot_repair_is_read_line_by_line() -> None:
    reading = read(
        "---\nname: a-skill\n\tdescription tabs\ndescription: one\n  two: [\nlicense: MIT\n---\nb"
    )
    assert skill_of(reading).description == "one two: ["
    assert skill_of(reading).license == "MIT"
    assert only(reading, "frontmatter-scanned").line == 2


def test_without_front_matter_folder_and_first_paragraph_are_used() -> None:
    reading = read(
        "# Morning\n\nTells the day's plan\nand the weather.\n\n## Steps\n", "morning-briefing"
    )
    assert skill_of(reading).name == "morning-briefing"
    assert skill_of(reading).description == "Tells the day's plan and the weather."
    assert skill_of(reading).body.startswith("# Morning")
    assert reading.codes() == {"frontmatter-missing"}


def test_missing_name_and_description_are_derived_and_reported() -> None:
    reading = read("---\nlicense: MIT\n---\n# Head\n\nSays what.\n")
    assert (skill_of(reading).name, skill_of(reading).description) == ("a-skill", "Says what.")
    assert reading.codes() == {"name-missing", "description-derived"}
    assert read("---\nname: a-skill\n---\n").codes() == {"description-missing", "body-empty"}


def test_dashes_inside_a_value_do_not_end_the_front_matter() -> None:
    skill = skill_of(
        read("---\nname: a-skill\ndescription: foo --- bar\n---\nbody --- more\n---\n")
    )
    assert skill.description == "foo --- bar"
    assert skill.body == "body --- more\n---\n"


def test_closing_line_joined_to_a_heading_is_split() -> None:
    reading = read("---\nname: a-skill\ndescription: x\n---# Heading\ntext")
    assert skill_of(reading).body == "# Heading\ntext"
    assert only(reading, "frontmatter-glued").line == 4


def test_unclosed_front_matter_ends_at_the_first_blank_line() -> None:
    reading = read("---\nname: a-skill\ndescription: x\n\n# Heading\n")
    assert skill_of(reading).description == "x"
    assert skill_of(reading).body == "\n# Heading\n"
    assert only(reading, "frontmatter-unclosed").line == 4


def test_byte_order_mark_blank_lines_and_crlf_are_accepted() -> None:
    reading = read("\ufeff\r\n---\r\nname: a-skill\r\ndescription: x\r\n---\r\nbody\r\n")
    assert skill_of(reading).description == "x"
    assert skill_of(reading).body == "body\r\n"
    assert reading.codes() == {"skill-bom", "frontmatter-blank-before"}


def test_invalid_utf8_is_replaced_and_reported() -> None:
    reading = read(b"---\nname: a-skill\ndescription: caf\xe9\n---\nbody")
    assert skill_of(reading).description == "caf\ufffd"
    assert (only(reading, "skill-encoding").line, only(reading, "skill-encoding").column) == (3, 17)


def test_utf16_is_read() -> None:
    reading = read("---\nname: a-skill\ndescription: x\n---\nbody".encode("utf-16"))
    assert skill_of(reading).description == "x"
    assert reading.codes() == {"skill-encoding"}


def test_control_characters_are_removed_and_reported() -> None:
    reading = read("---\nname: a-skill\ndescription: a\x00b\x07c\n---\nbody")
    assert skill_of(reading).description == "abc"
    assert only(reading, "skill-control-character").line == 3


def test_last_of_duplicate_keys_counts() -> None:
    reading = read("---\nname: a-skill\ndescription: one\ndescription: two\n---\nbody")
    assert skill_of(reading).description == "two"
    assert only(reading, "frontmatter-duplicate-key").line == 4


def test_large_file_is_read_completely() -> None:
    body = "line\n" * 60_000
    assert skill_of(read(f"---\nname: a-skill\ndescription: x\n---\n{body}")).body == body


def test_oversized_front_matter_is_scanned_up_to_a_limit() -> None:
    front = "name: a-skill\ndescription: x\n" + "k: v\n" * 40_000
    reading = read(f"---\n{front}---\nbody")
    assert skill_of(reading).description == "x"
    assert "frontmatter-too-large" in reading.codes()


def test_exponential_aliases_are_not_expanded() -> None:
    laughs = "a: &a [x,x,x]\n" + "".join(
        f"{new}: &{new} [*{old},*{old},*{old}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    reading = read(f"---\nname: a-skill\ndescription: x\n{laughs}---\nbody")
    assert skill_of(reading).description == "x"
    assert "alias of something" in only(reading, "frontmatter-not-yaml").message


@pytest.mark.parametrize(
    ("written", "expected", "standard"),
    [
        ("Read Write", ("Read", "Write"), True),
        ("Read, Write,Bash(git:*)", ("Read", "Write", "Bash(git:*)"), False),
        ("\n- Read\n- Bash(a b)", ("Read", "Bash(a b)"), False),
        ("[Read, Write]", ("Read", "Write"), False),
    ],
)
def test_allowed_tools_are_read_in_three_forms(
    written: str, expected: tuple[str, ...], standard: bool
) -> None:
    reading = read(f"---\nname: a-skill\ndescription: x\nallowed-tools: {written}\n---\nbody")
    assert skill_of(reading).allowed_tools == expected
    assert ("allowed-tools-form" not in reading.codes()) == standard


def test_unknown_fields_and_odd_metadata_are_kept_and_reported() -> None:
    reading = read(
        "---\nname: a-skill\ndescription: x\nuser-invocable: false\nauthor: me\n"
        'metadata: {"openclaw": {"requires": {"bins": ["jq"]}, "always": true}, "n": 1.50}\n---\nbody'
    )
    assert skill_of(reading).extra == {"user-invocable": False, "author": "me"}
    assert skill_of(reading).metadata == {
        "openclaw": {"requires": {"bins": ("jq",)}, "always": True},
        "n": "1.50",
    }
    assert {"field-unknown", "metadata-type"} == reading.codes()
    assert "flow-style" in reading.traits


@pytest.mark.parametrize(
    ("name", "folder", "codes"),
    [
        ("My SkillSpec", "My SkillSpec", {"name-format"}),
        ("my_skill", "my_skill", {"name-format"}),
        ("-a", "-a", {"name-format"}),
        ("a--b", "a--b", {"name-format"}),
        ("a" * 65, "a" * 65, {"name-too-long"}),
        ("other", "a-skill", {"name-directory"}),
        ("../../etc", "a-skill", {"name-format", "name-directory"}),
    ],
)
def test_names_that_other_clients_reject_are_kept_and_reported(
    name: str, folder: str, codes: set[str]
) -> None:
    reading = read(f"---\nname: {name}\ndescription: x\n---\nbody", folder)
    assert skill_of(reading).name == name
    assert reading.codes() == codes


@pytest.mark.parametrize(
    ("metadata", "code", "line", "column"),
    [
        ("\n  version: [1, 2]", "field-type", 6, 3),
        ("\n  trigger_patterns: {a: b}", "field-type", 6, 3),
        ("\n  butlers.pack: nonsense", "field-type", 6, 3),
        ('\n  butlers.pack: \'{"metadata": {"a": 1}}\'', "field-twice", 6, 3),
        ("\n  butlers.pack: '{\"metadata\": [1]}'", "manifest-type", 6, 3),
        ("\n  n: 1.50", "metadata-type", 6, 3),
    ],
)
def test_changed_values_are_reported_at_their_place(
    metadata: str, code: str, line: int, column: int
) -> None:
    below = metadata.replace("\n", "\n  a: text\n", 1)
    reading = read(f"---\nname: a-skill\ndescription: x\nmetadata:{below}\n---\nbody")
    found = only(reading, code)
    assert (found.line, found.column) == (line, column)


def test_numeric_version_in_json_is_reported() -> None:
    reading = read("---\nname: a\ndescription: x\nmetadata: '{\"version\": 2}'\n---\nbody", "a")
    assert skill_of(reading).version is None
    assert [(found.code, found.message, found.line) for found in reading.diagnostics] == [
        ("field-type", "is JSON in a string; the standard has a map", 4),
        ("field-type", "version must be a string", 4),
    ]


def test_missing_fields_are_reported_at_the_first_line() -> None:
    reading = read("\n---\nlicense: MIT\n---\n")
    for code in ("name-missing", "description-missing", "body-empty"):
        found = only(reading, code)
        assert (found.line, found.column) == (3, 1)


def test_non_string_metadata_is_written_in_the_pack_json() -> None:
    skill = SkillSpec(
        "a-skill", "x", "b", metadata={"n": 1, "on": True, "no": None, "l": [1], "t": "1"}
    )
    written = FORMAT.render(skill)["SKILL.md"].decode()
    said = yaml.safe_load(written.split("---\n")[1])["metadata"]
    assert said["t"] == "1"
    assert all(isinstance(value, str) for value in said.values())
    back = FORMAT.read(SkillFile(Path("a-skill/SKILL.md"), written.encode()))
    assert back.diagnostics == ()
    assert skill_of(back).metadata == {"n": 1, "on": True, "no": None, "l": (1,), "t": "1"}


@pytest.mark.parametrize(
    "field",
    [
        """metadata: '{"a": "\\ud800"}'""",
        """trigger_patterns: '["\\ud800"]'""",
        """metadata:\n  trigger_patterns: '["\\ud800"]'""",
        """metadata:\n  butlers.pack: '{"owner": "\\ud800"}'""",
    ],
)
def test_unpaired_surrogate_in_json_is_reported_and_replaced(field: str) -> None:
    reading = read(f"---\nname: a-skill\ndescription: x\n{field}\n---\nDo it.\n")
    found = only(reading, "skill-half-character")
    assert found.line in (4, 5)
    skill = skill_of(reading)
    assert "\ufffd" in f"{skill.metadata}{skill.trigger_patterns}{skill.owner}"


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_unpaired_surrogate_in_yaml_is_reported_by_either_loader(
    loader: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_nodes, "_LOADER", loader)  # which one there is depends on the machine
    reading = read('---\nname: a-skill\ndescription: "a \\uD800"\n---\nDo it.\n')
    told = {"skill-half-character", "frontmatter-not-yaml"} & reading.codes()
    assert [only(reading, code).line for code in told] == [3]
    skill_of(reading).description.encode()


def test_folder_name_that_is_not_utf8_gives_a_valid_name() -> None:
    assert skill_of(read("# Use\n\nDo it.\n", os.fsdecode(b"a-\xff"))).name == "a-\ufffd"
