"""manifest.json: every rule has its own code, and all problems are reported at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.diagnostic import Severity
from butlers.skills.formats.base import Reading, SkillFile
from butlers.skills.formats.manifest import FORMAT
from butlers.skills.skill import PackMcpServer, ServerKind
from support.skills import MANIFEST


def read(document: Any, folder: str = "social-media") -> Reading:
    return FORMAT.read(SkillFile(Path(folder) / "manifest.json", json.dumps(document).encode()))


def errors(reading: Reading) -> set[tuple[str, str | None]]:
    return {(found.code, found.entry) for found in reading.diagnostics}


@pytest.mark.scenario("S003-02")
def test_id_name_version_description_and_owner_are_required() -> None:
    assert read(MANIFEST).diagnostics == ()
    for field in ("id", "name", "version", "description", "owner"):
        lacking = {key: value for key, value in MANIFEST.items() if key != field}
        assert errors(read(lacking)) == {("manifest-field-missing", field)}
    assert errors(read({})) == {
        ("manifest-field-missing", field)
        for field in ("id", "name", "version", "description", "owner")
    }


@pytest.mark.scenario("S003-03")
def test_context_scripts_env_vars_and_mcp_servers_are_parsed_and_typed() -> None:
    skill = read(
        MANIFEST
        | {
            "context": ["context/instructions.md", "./context/guidelines.md"],
            "scripts": ["scripts/post.ts"],
            "envVars": ["TWITTER_API_KEY"],
            "mcpServers": [
                {
                    "name": "social-mcp",
                    "type": "local",
                    "command": "node",
                    "args": ["mcp/server.js"],
                },
                {"name": "external-api", "type": "remote", "url": "https://mcp.example.com/api"},
            ],
        }
    ).skill
    assert skill is not None
    assert skill.context == ("context/instructions.md", "context/guidelines.md")
    assert skill.scripts == ("scripts/post.ts",)
    assert skill.env_vars == ("TWITTER_API_KEY",)
    assert skill.mcp_servers == (
        PackMcpServer("social-mcp", ServerKind.LOCAL, command="node", args=("mcp/server.js",)),
        PackMcpServer("external-api", ServerKind.REMOTE, url="https://mcp.example.com/api"),
    )


@pytest.mark.scenario("S003-04")
def test_dependencies_node_version_and_system_packages_are_parsed_and_checked() -> None:
    skill = read(
        MANIFEST
        | {
            "dependencies": ["basic-tools@1.0.0", "other@^1.2", "any"],
            "nodeVersion": ">=20.0.0",
            "systemPackages": ["chromium", "ffmpeg"],
        }
    ).skill
    assert skill is not None
    assert skill.dependencies == ("basic-tools@1.0.0", "other@^1.2", "any")
    assert skill.node_version == ">=20.0.0"
    assert skill.system_packages == ("chromium", "ffmpeg")
    wrong = read(
        MANIFEST
        | {
            "dependencies": ["Basic@1", "a@@2"],
            "nodeVersion": "new",
            "systemPackages": ["a; rm -rf /"],
        }
    )
    assert errors(wrong) == {
        ("manifest-dependency", "dependencies"),
        ("manifest-node-version", "nodeVersion"),
        ("manifest-system-package", "systemPackages"),
    }
    assert wrong.skill is not None
    assert (wrong.skill.dependencies, wrong.skill.system_packages) == ((), ())


def test_registry_fields_in_the_file_are_ignored() -> None:
    reading = read(MANIFEST | {"usedBy": ["me"], "registeredAt": "2024-01-15", "updatedAt": "x"})
    assert {code for code, _ in errors(reading)} == {"manifest-registry-field"}
    assert reading.skill is not None
    assert reading.skill.extra == {}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("id", "Social_Media", "manifest-id"),
        ("id", "-", "manifest-id"),
        ("id", "a--b", "name-format"),
        ("version", "2.1", "version-format"),
        ("version", "v2.1.0", "version-format"),
        ("version", "02.1.0", "version-format"),
        ("version", "latest", "manifest-version"),
        ("name", 5, "manifest-type"),
        ("context", "context/a.md", "manifest-type"),
        ("context", ["../../secret.md"], "manifest-path"),
        ("context", ["/etc/passwd"], "manifest-path"),
        ("context", ["C:/x"], "manifest-path"),
        ("context", ["a\\..\\b"], "manifest-path"),
        ("scripts", ["scripts/../../x.sh"], "manifest-path"),
        ("scripts", [7], "manifest-type"),
        ("envVars", ["A=B"], "manifest-env-var"),
        ("mcpServers", {"a": 1}, "manifest-type"),
        ("mcpServers", [{"name": "x", "type": "local"}], "manifest-mcp-server"),
        (
            "mcpServers",
            [{"name": "x", "type": "remote", "url": "file:///etc"}],
            "manifest-mcp-server",
        ),
        (
            "mcpServers",
            [{"name": "x", "type": "remote", "url": "http://[::1"}],
            "manifest-mcp-server",
        ),
        ("mcpServers", [{"name": "../x", "type": "local", "command": "a"}], "manifest-mcp-server"),
        ("mcpServers", [{"name": "x", "type": "tunnel", "command": "a"}], "manifest-mcp-server"),
        ("metadata", [1], "manifest-type"),
        ("colour", "red", "manifest-key-unknown"),
    ],
)
def test_each_rule_has_its_own_code(field: str, value: Any, code: str) -> None:
    reading = read(MANIFEST | {field: value})
    assert errors(reading) == {(code, field)}
    assert reading.skill is not None
    assert reading.skill.context == ()
    assert reading.skill.scripts == ()
    assert reading.skill.mcp_servers == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"{'a': 1}", b"nul", b'{"a": NaN}'])
def test_file_that_is_not_a_json_object_gives_no_skill(content: bytes) -> None:
    reading = FORMAT.read(SkillFile(Path("x/manifest.json"), content))
    assert reading.skill is None
    assert reading.codes() == {"manifest-not-json"}


def test_last_of_duplicate_keys_counts() -> None:
    content = json.dumps(MANIFEST)[:-1] + ', "version": "3.0.0"}'
    reading = FORMAT.read(SkillFile(Path("x/manifest.json"), content.encode()))
    assert reading.skill is not None
    assert reading.skill.version == "3.0.0"
    assert reading.codes() == {"manifest-duplicate-key"}


# Each line has a different problem; `places` below lists their positions.
CROOKED = """{
  "id": "Bad_Id", "name": 7,
  "version": "two",
  "usedBy": [],
  "context": ["fine.md", "../out.md"],
  "scripts": [
    "run.py",
    8],
  "envVars": ["GOOD", "NOT GOOD"], "mcpServers": [{"name": "x", "type": "local", "command": "y"},
    {"name": "z"}],
  "dependencies": ["a@1.0.0", "B"],
  "nodeVersion": "new",
  "systemPackages": [  "a b" ],
  "license": ["MIT"],
  "allowedTools": "Read", "allowed-tools": "Write",
  "metadata": {"a": 1, "version": "9", "b": {"k": 1, "k": 2}},
  "frontmatter": {"name": "other", "colour": 2},
  "colour": "red \\" { [ , :",
  "description": %s
}
"""


def test_manifest_problems_have_line_and_column() -> None:
    content = (CROOKED % json.dumps("x" * 1025)).encode()
    reading = FORMAT.read(SkillFile(Path("x/manifest.json"), content))
    places = [(found.code, found.entry, found.line, found.column) for found in reading.diagnostics]
    assert sorted(places, key=lambda place: place[2:]) == [
        ("manifest-field-missing", "owner", 1, 1),
        ("manifest-id", "id", 2, 9),
        ("manifest-type", "name", 2, 27),
        ("manifest-version", "version", 3, 14),
        ("manifest-registry-field", "usedBy", 4, 3),
        ("manifest-path", "context", 5, 26),
        ("manifest-type", "scripts", 8, 5),
        ("manifest-env-var", "envVars", 9, 23),
        ("manifest-mcp-server", "mcpServers", 10, 5),
        ("manifest-dependency", "dependencies", 11, 31),
        ("manifest-node-version", "nodeVersion", 12, 18),
        ("manifest-system-package", "systemPackages", 13, 24),
        ("manifest-type", "license", 14, 14),
        ("field-twice", "allowed-tools", 15, 27),
        ("field-twice", "metadata.version", 16, 24),
        ("manifest-duplicate-key", "k", 16, 54),
        ("field-twice", "frontmatter.name", 17, 19),
        ("field-twice", "frontmatter.colour", 17, 36),
        ("manifest-key-unknown", "colour", 18, 3),
        ("description-too-long", "description", 19, 18),
    ]
    assert reading.skill is not None
    assert reading.skill.metadata == {"a": 1, "b": {"k": 2}}
    assert reading.skill.extra == {"colour": 'red " { [ , :'}


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        ("", 1, 1),
        ("\n  [1]", 2, 3),
        ('{\n  "a" 1}', 2, 7),
        ('{"a": 1,\n "b": NaN}', 2, 7),
        ('{"NaN": "Infinity",\n "b": [-Infinity]}', 2, 8),
        ('{"a":\n  ' + "9" * 5000 + "}", 2, 3),
        ('{"[[[": \n' + "[" * 500 + "]" * 500 + "}", 2, 40),
    ],
)
def test_invalid_json_is_reported_at_the_first_error(content: str, line: int, column: int) -> None:
    (found,) = FORMAT.read(SkillFile(Path("x/manifest.json"), content.encode())).diagnostics
    assert (found.code, found.line, found.column) == ("manifest-not-json", line, column)


@pytest.mark.parametrize("value", ["a text", [1], 7, True])
def test_frontmatter_key_that_is_not_an_object_is_reported(value: Any) -> None:
    assert errors(read(MANIFEST | {"frontmatter": value})) == {("manifest-type", "frontmatter")}


@pytest.mark.parametrize(
    ("field", "value"), [("owner", "\ud800"), ("name", "a\udfff"), ("context", ["\ud800.md"])]
)
def test_unpaired_surrogate_is_reported_and_replaced(field: str, value: Any) -> None:
    content = json.dumps({"metadata": {}} | MANIFEST | {field: value}, indent=1).encode()
    reading = FORMAT.read(SkillFile(Path("social-media") / "manifest.json", content))
    (found,) = [found for found in reading.diagnostics if found.code == "skill-half-character"]
    lines = content.decode().split("\n")
    assert found.severity is Severity.ERROR
    assert found.line is not None
    assert found.column is not None
    assert lines[found.line - 1][found.column - 1 :].startswith(('"\\ud800', '"a\\udfff'))
    assert reading.skill is not None
    assert "\ufffd" in f"{reading.skill.owner}{reading.skill.title}{reading.skill.context}"


def test_surrogate_pair_becomes_one_character() -> None:
    reading = read(MANIFEST | {"description": "Posts 😀."})
    assert (reading.skill and reading.skill.description, reading.diagnostics) == ("Posts 😀.", ())
