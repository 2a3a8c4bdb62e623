"""``butlers secrets`` as a person uses it: no fleet runs, and no value is ever printed."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from butlers.db.embedded import EmbeddedPostgres
from butlers.secrets.import_file import read_secrets_file
from butlers.secrets.sealed import InvalidSecret
from support.fleet import butlers_environment, command
from support.forked import run_butlers


@dataclass
class SecretsCommands:
    home: Path

    def secrets(
        self, *arguments: str, value: str | bytes | None = None, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        env = butlers_environment(self.home, 0, **extra)
        said = run_butlers("secrets", *arguments, env=env, cwd=self.home, stdin=value)
        assert "planted" not in said.stdout + said.stderr
        assert "Traceback" not in said.stderr
        if said.returncode == 1:
            assert said.stderr.startswith("error: ")
            assert "\nhint: " in said.stderr
        return said

    def names(self) -> list[tuple[str, str]]:
        listed = json.loads(self.secrets("list", "--json").stdout)
        return [(entry["scope"], entry["name"]) for entry in listed]

    def write(self, name: str, content: str) -> str:
        (self.home / name).write_text(content)
        return str(self.home / name)


@pytest.fixture(scope="module")
def warm(template_home: Path) -> Iterator[Path]:
    """A home whose server is kept running between the commands."""
    home = Path(tempfile.mkdtemp(prefix="bh-"))
    shutil.copytree(template_home, home, dirs_exist_ok=True, symlinks=True)
    server = EmbeddedPostgres(home)
    server.acquire()
    yield home
    server.release()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
async def commands(warm: Path) -> AsyncIterator[SecretsCommands]:
    yield SecretsCommands(warm)
    connection = await asyncpg.connect(EmbeddedPostgres(warm).dsn("butlers"))
    await connection.execute("DELETE FROM shared.secrets")
    await connection.close()


def test_first_command_prepares_a_new_home(home: Path) -> None:
    commands = SecretsCommands(home)
    said = commands.secrets("set", "FIRST", "--value-stdin", value="planted-first")
    assert (said.returncode, said.stdout) == (0, "FIRST: stored for every butler\n"), said.stderr
    assert commands.names() == [("shared", "FIRST")]
    assert (home / "keys" / "master.key").stat().st_mode & 0o777 == 0o600
    assert not EmbeddedPostgres(home).is_running()


def test_set_list_and_delete(commands: SecretsCommands) -> None:
    assert commands.secrets("set", "A", "--value-stdin", value="planted-a\n").returncode == 0
    more = ("--category", "llm", "--description", "what for")
    said = commands.secrets(
        "set", "B", "--scope", "health", "--value-stdin", *more, value="planted-b"
    )
    assert said.stdout == "B: stored for health\n"
    listed = json.loads(commands.secrets("list", "--json").stdout)
    assert [(entry["scope"], entry["name"]) for entry in listed] == [
        ("health", "B"),
        ("shared", "A"),
    ]
    assert (listed[0]["category"], listed[0]["description"]) == ("llm", "what for")
    assert set(listed[0]) == {
        "scope",
        "name",
        "category",
        "description",
        "readable",
        "created_at",
        "updated_at",
    }
    table = commands.secrets("list").stdout.splitlines()
    assert table[0].split() == ["SCOPE", "NAME", "CATEGORY", "UPDATED", "READABLE", "DESCRIPTION"]
    assert commands.secrets("delete", "A").stdout == "A: deleted for every butler\n"
    gone = commands.secrets("delete", "A")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert commands.names() == [("health", "B")]


def test_a_value_as_an_option_is_a_usage_error(commands: SecretsCommands) -> None:
    assert commands.secrets("set", "A", "--value=planted-value").returncode == 2


REFUSED: list[tuple[tuple[str, ...], str | bytes | None, str]] = [
    (("set", "A", "--value-stdin"), "", "empty"),
    (("set", "A", "--value-stdin"), "\n", "empty"),
    (("set", "A", "--value-stdin"), "planted" * 10_000, "70,000 bytes; 65,536 is the limit"),
    (("set", "A", "--value-stdin"), b"planted\xff", "not valid UTF-8 at byte 7"),
    (("set", "A", "--value-stdin"), b"planted\0", "NUL"),
    (("set", "9 planted", "--value-stdin"), "planted", "not a valid name"),
    (("set", "A", "--scope", "nobody", "--value-stdin"), "planted", "no butler 'nobody'"),
    (("set", "A"), "planted", "no terminal"),
    (("set", "A", "planted-value"), None, "not accepted as an argument"),
    (("set", "A", "x", "planted"), None, "--value-stdin"),
    (("set", "A=planted-value"), None, "not accepted as an argument"),
    (("delete", "A"), None, "no secret A"),
    (("import", "/does/not/exist"), None, "No such file"),
]


def test_invalid_secret_is_rejected_with_the_reason(commands: SecretsCommands) -> None:
    for arguments, value, reason in REFUSED:
        said = commands.secrets(*arguments, value=value)
        assert said.returncode == 1, arguments
        assert reason in said.stderr
        assert said.stdout == ""
    assert commands.names() == []


def test_prompt_hides_the_typed_value(commands: SecretsCommands) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command("secrets", "set", "TYPED"),
        env=butlers_environment(commands.home, 0),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=commands.home,
        start_new_session=True,
    )
    os.close(follower)
    said = b""
    while b"(not shown)" not in said:
        assert select.select([leader], [], [], 60)[0], said
        said += os.read(leader, 1000)
    os.write(leader, b"planted-typed\n")
    assert process.wait(60) == 0
    while select.select([leader], [], [], 0.2)[0]:
        try:
            said += os.read(leader, 1000)
        except OSError:
            break
    os.close(leader)
    assert b"planted" not in said
    assert b"TYPED: stored for every butler" in said
    assert commands.names() == [("shared", "TYPED")]


def test_wrong_and_exposed_master_keys_are_reported(commands: SecretsCommands) -> None:
    commands.secrets("set", "A", "--value-stdin", value="planted-a")
    other = commands.secrets("list", "--json", BUTLERS_MASTER_KEY="ab" * 32)
    assert [entry["readable"] for entry in json.loads(other.stdout)] == [False]
    assert "no: another key" in commands.secrets("list", BUTLERS_MASTER_KEY="ab" * 32).stdout
    bad = commands.secrets("list", BUTLERS_MASTER_KEY="planted-not-a-key")
    assert bad.returncode == 1
    file = commands.home / "keys" / "master.key"
    file.chmod(0o644)
    try:
        refused = commands.secrets("list")
        assert refused.returncode == 1
        assert "chmod 600" in refused.stderr
    finally:
        file.chmod(0o600)


# -- import ------------------------------------------------------------------------------------------


def test_env_json_of_the_seed(commands: SecretsCommands) -> None:
    file = commands.write(
        "env.json", '{"TWITTER_API_KEY": "planted-1", "OPENAI_API_KEY": "planted-2"}'
    )
    said = commands.secrets("import", file)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [
        "TWITTER_API_KEY: stored for every butler",
        "OPENAI_API_KEY: stored for every butler",
    ]
    assert f"hint: {file} still holds them in clear text: delete it" in said.stderr
    assert commands.names() == [("shared", "OPENAI_API_KEY"), ("shared", "TWITTER_API_KEY")]


def test_json_by_scope_and_lines(commands: SecretsCommands) -> None:
    nested = {"health": {"A": "planted"}, "shared": {"A": "planted"}, "B": "planted"}
    assert commands.secrets("import", commands.write("n.json", json.dumps(nested))).returncode == 0
    lines = (
        "# note\nexport C=\"planted\\nlines\" # more\n\nD=planted # note\r\nE='planted\n#x'\nF=a#b"
    )
    said = commands.secrets("import", commands.write(".env", lines), "--scope", "general")
    assert said.returncode == 0, said.stderr
    assert commands.names() == [
        ("general", "C"),
        ("general", "D"),
        ("general", "E"),
        ("general", "F"),
        ("health", "A"),
        ("shared", "A"),
        ("shared", "B"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "reasons"),
    [
        ("a.json", '{"GOOD": "planted", "EMPTY": "", "bad name": "planted", "N": 5}',
         ["entry 2: shared/EMPTY: the value is empty", "entry 3: this is not a valid name", "entry 4"]),
        ("b.json", '{"GOOD": "planted", "GOOD": "planted"}', ["shared/GOOD appears twice"]),
        ("d.json", '{"GOOD": "planted",\n "X": planted}', ["d.json:2: not valid JSON"]),
        ("e.json", '["planted"]', ["not a JSON object"]),
        ("f.json", "{}", ["the file holds no secret"]),
        ("g.json", '{"GOOD": {"A": {"B": "planted"}}}', ["entry 1.1"]),
        ("h.env", "GOOD=planted\nplanted without a sign\n", ["h.env:2: not a line"]),
        ("i.env", 'GOOD=planted\nX="planted without an end\n', ["i.env:2: not a line"]),
        ("j.env", "GOOD=planted\nEMPTY=\n", ["line 2: shared/EMPTY: the value is empty"]),
        ("k.env", "GOOD=planted\nGOOD=planted\n", ["line 2: shared/GOOD appears twice"]),
        ("l.json", '{"x":' * 20_000, ["not valid JSON"]),
        ("m.env", "", ["the file holds no secret"]),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_whole_and_every_reason_is_named(
    tmp_path: Path, name: str, content: str, reasons: list[str]
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InvalidSecret) as refused:
        read_secrets_file(file, "shared")
    for reason in reasons:
        assert reason in str(refused.value)
    assert "planted" not in f"{refused.value}{refused.value.hint}"
    assert refused.value.hint


def test_the_lines_of_an_env_file_mean_what_they_mean_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(
        b"\xef\xbb\xbf# note\r\nexport A=plain value \r\n  B = spaced # note\nC=a#b=c\n"
        b'D="x \\"y\\" \\n$z # no note" # note\nE=\'raw \\n "q"\'\nF="two\nlines"\n\nG=\xc3\xa4'
    )
    assert {secret.name: str(secret.value) for secret in read_secrets_file(file, "shared")} == {
        "A": "plain value",
        "B": "spaced",
        "C": "a#b=c",
        "D": 'x "y" \n$z # no note',
        "E": 'raw \\n "q"',
        "F": "two\nlines",
        "G": "ä",
    }


def test_an_import_is_all_or_nothing(commands: SecretsCommands) -> None:
    for content in (
        '{"GOOD": "planted", "EMPTY": ""}',
        '{"GOOD": "planted", "no": {"X": "planted"}}',
    ):
        assert commands.secrets("import", commands.write("bad.json", content)).returncode == 1
    assert commands.names() == []


def test_concurrent_commands_succeed(commands: SecretsCommands) -> None:
    names = [f"N{number}" for number in range(6)]
    files = [
        commands.write(f"{mark}.json", json.dumps(dict.fromkeys(order, f"planted-{mark}")))
        for mark, order in (("x", names), ("y", names[::-1]))
    ]
    with ThreadPoolExecutor(6) as pool:
        done = [
            *pool.map(lambda file: commands.secrets("import", file), files * 2),
            *pool.map(
                lambda n: commands.secrets("set", n, "--value-stdin", value="planted"), ["S", "S"]
            ),
        ]
    assert [said.returncode for said in done] == [0] * 6
    assert commands.names() == [("shared", name) for name in [*names, "S"]]
