"""Text from outside on the owner's terminal: escapes, forged lines, commands to paste, lookalikes."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import butlers
from butlers.cli import output
from butlers.cli.main import _print_error
from butlers.cli.serve import Progress
from butlers.config.settings import Settings
from butlers.daemon.logs import configure_logs
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments
from butlers.switchboard.lookalikes import Lookalikes
from support.fleet import Fleet, wait_for

SOURCE = Path(butlers.__file__).parent
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u3164\U000e0041"
CONTROLS = "".join(map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0)])) + "\u2028\u2029"
HOSTILE = f"a\x1b]0;title\x07\x1b[2J\x9b1A{CONTROLS}{BIDI}{ZERO_WIDTH}\r\nhint: paste this\tz"
FORBIDDEN = frozenset(CONTROLS + BIDI + ZERO_WIDTH + "\ud800")
SHELL = "bob'$(touch x)`touch y`;touch z@example.com"
# Calls outside output.py that write to the terminal, with the reason.
ALLOWED_PRINTS = {
    ("main.py", "show"): "click's usage error, escaped before",
}


def raw(text: str, allowed: str = "\n") -> set[str]:
    """Return the characters of a printed text that must not reach a terminal."""
    return set(text) & (FORBIDDEN - set(allowed))


def from_outside(fleet: Fleet, text: str, sender: str) -> dict[str, Any]:
    answer: dict[str, Any] = fleet.call(
        "switchboard",
        "ingest",
        {
            "schema_version": "ingest.v1",
            "source": {"channel": "email", "provider": "imap", "endpoint_identity": "me@home"},
            "event": {
                "external_event_id": str(uuid7()),
                "observed_at": "2026-01-01T00:00:00Z",
            },
            "sender": {"identity": sender},
            "payload": {"normalized_text": text, "raw": {"headers": {}}},
        },
    )
    return answer


# -- printing ----------------------------------------------------------------------------------------


def test_a_cell_cannot_control_the_terminal_or_add_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a sender's text clears the screen, turns the direction and forges a table row."""
    output.print_table(("sender", "text"), [[HOSTILE, "x\nroot  allowed"]])
    output.print_rows([{"sender": [HOSTILE], "text": {HOSTILE: 1}}], ("sender", "text"), False)
    shown = capsys.readouterr().out
    assert raw(shown) == set()
    assert len(shown.splitlines()) == 4
    assert r"\x1b[2J\x9b1A" in shown
    assert r"\u202e" in shown


def test_a_line_or_result_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: an address with a line break makes a command print a line of the attacker's choice."""
    output.print_line(HOSTILE)
    output.print_result({}, HOSTILE, False)
    shown = capsys.readouterr().out
    assert raw(shown) == set()
    assert len(shown.splitlines()) == 2


def test_a_reply_keeps_lines_and_tabs_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a reply that quotes a stranger's mail moves the cursor and rewrites earlier lines."""
    output.print_text(f"first\r\n\tsecond Grüße\u00a0日本 {HOSTILE}")
    shown = capsys.readouterr().out
    assert raw(shown, "\n\t") == set()
    assert shown.startswith("first\n\tsecond Grüße\u00a0日本 a\\x1b]0;title")


def test_an_error_cannot_forge_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a value in an error message adds a line that reads like our own hint."""
    _print_error(InvalidArguments(f"no {HOSTILE}", hint=f"see {HOSTILE}"))
    shown = capsys.readouterr().err
    assert raw(shown, "\n\t") == set()
    assert [line for line in shown.splitlines() if line.startswith("hint: paste")] == []


def test_json_output_is_the_same_document_without_raw_controls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Attack: `--json` on a terminal shows direction and C1 characters, which JSON need not escape."""
    document = {"text": HOSTILE, "name": "Grüße 日本"}
    output.print_json(document)
    shown = capsys.readouterr().out
    assert raw(shown) == set()
    assert json.loads(shown) == document
    assert "Grüße 日本" in shown


def test_rich_tables_escape_text_and_markup(tmp_path: Path) -> None:
    """Attack: the error of a failed start carries escapes, and markup that makes a hidden link."""
    from rich.console import Console

    progress = Progress(["[link=https://evil.example]health[/link]"], 0.0, tmp_path)
    progress._states = {"[link=https://evil.example]health[/link]": f"failed: {HOSTILE}"}
    shown = io.StringIO()
    Console(file=shown, width=2_000, color_system=None).print(progress._table())
    assert raw(shown.getvalue()) == set()
    assert "[link=https://evil.example]health[/link]" in shown.getvalue()


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogRecordFactory(), sys.excepthook
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(Settings(home=Path("/nonexistent"), log_format="text"))
    yield stream
    structlog.reset_defaults()
    logging.captureWarnings(False)
    root.handlers[:], root.level = before[0], before[1]
    logging.setLogRecordFactory(before[2])
    sys.excepthook = before[3]


def test_text_logs_escape_values_and_tracebacks(
    logs: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: a subject line in the log clears the terminal of whoever reads it and forges entries."""
    structlog.get_logger("one").info(f"event {HOSTILE}", sender=HOSTILE, more=[HOSTILE])
    logging.getLogger("library").warning("from a library: %s", HOSTILE)
    assert raw(logs.getvalue()) == set()
    assert len(logs.getvalue().splitlines()) == 2
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        structlog.get_logger("one").exception("failed")
        sys.excepthook(ValueError, error, error.__traceback__)
    for shown in (logs.getvalue(), crash := capsys.readouterr().err):
        assert raw(shown, "\n\t") == set()
        assert shown.count("Traceback (most recent call last)") == 1
    assert "\nhint: paste" not in logs.getvalue()
    assert r"\x1b[2J" in crash


def test_only_the_output_module_prints() -> None:
    """Attack: a new command prints outside text directly, past the escapes."""
    found = set()
    for file in sorted((SOURCE / "cli").glob("*.py")):
        if file.name == "output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and (name := _printing(node)):
                found.add((file.name, name))
    assert found == set(ALLOWED_PRINTS)


def _printing(call: ast.Call) -> str | None:
    """Return the name of a called function that writes to the terminal by itself."""
    name = ast.unparse(call.func)
    if name in ("show", "print") or re.fullmatch(r"sys\.std(out|err)\.(buffer\.)?write.*", name):
        return name
    match = re.fullmatch(r"(?:typer|click|rich|console)\.(echo|secho|print|confirm|prompt)", name)
    return match[1] if match else None


# -- commands to paste -------------------------------------------------------------------------------


def test_values_in_suggested_commands_are_quoted() -> None:
    """Attack: a name with `$(…)` stands unquoted in a command that a hint tells the owner to paste."""
    unquoted = [
        f"{file.relative_to(SOURCE)}:{value.lineno}: {ast.unparse(value.value)}"
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.JoinedStr)
        for value in _command_values(node)
        if not ast.unparse(value.value).startswith("shlex.")
    ]
    assert unquoted == []


def _command_values(text: ast.JoinedStr) -> Iterator[ast.FormattedValue]:
    """Yield the values that stand in a command: in backquotes, or directly after its words."""
    before = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            opened = before.rpartition("`")[2] if before.count("`") % 2 else ""
            if re.search(r"\b(butlers|chmod) ", opened) or re.search(
                r"\bbutlers [a-z]+( [a-z]+)?( --[a-z-]+) $", before
            ):
                yield part
            before += "\0"
        elif isinstance(part, ast.Constant):
            before += str(part.value)


def test_a_senders_address_is_in_no_command(fleet: Fleet) -> None:
    """Attack: `bob'$(touch x)` writes, and the question tells the owner what to paste."""
    assert from_outside(fleet, "hi", SHELL)["status"] == "held"
    rows = "SELECT message FROM messenger.console_mailbox WHERE message LIKE '%touch x%'"
    (asked,) = wait_for("the question", lambda: fleet.rows(rows))
    (waiting,) = json.loads(fleet.butlers("contacts", "waiting", "--json").stdout)
    commands = re.findall("`([^`]*)`", asked["message"])
    assert commands == [f"butlers contacts {verb} {waiting['id']}" for verb in ("allow", "block")]
    assert waiting["id"] in fleet.butlers("contacts", "waiting").stdout
    blocked = fleet.butlers(*shlex.split(commands[1])[1:], "--json")
    assert blocked.returncode == 0, blocked.stderr
    assert json.loads(blocked.stdout)["identity"] == SHELL
    again = fleet.butlers("contacts", "allow", waiting["id"])
    assert again.returncode == 1
    assert "no held senders start with" in again.stderr
    allowed = fleet.butlers("contacts", "allow", "email", SHELL)
    assert allowed.returncode == 0, allowed.stderr


def test_commands_show_a_hostile_message_escaped(fleet: Fleet) -> None:
    """Attack: sender and text of a held message carry escapes into every command that lists them."""
    hostile = HOSTILE.replace("\0", "")
    sender = "eve\x1b[2J\u202e\u200b@example.com"
    request_id = from_outside(fleet, hostile, sender)["request_id"]
    try:
        for arguments in (
            ("contacts", "waiting"),
            ("trace", request_id),
            ("triage", request_id),
            ("mail", "--wait", "30"),
            ("deliveries", "list"),
            ("sessions", "list"),
            ("dead", "list"),
            ("connectors",),
        ):
            done = fleet.butlers(*arguments)
            assert done.returncode == 0, done.stderr
            assert raw(done.stdout + done.stderr, "\n\t") == set(), arguments
        table = fleet.butlers("contacts", "waiting").stdout
        assert len(table.splitlines()) == 2
        assert r"eve\x1b[2j\u202e\u200b@example.com" in table
        refused = fleet.butlers("contacts", "allow", "\x1b[2J\u202e")
        assert raw(refused.stderr) == set()
    finally:
        fleet.call("switchboard", "contacts_block", {"channel": "email", "identity": sender})


# -- lookalikes --------------------------------------------------------------------------------------

CONTACTS = [
    {"name": "owner", "roles": ["owner"], "identity": "owner"},
    {"name": "Anna", "roles": ["contact"], "identity": "anna@example.com"},
]


@pytest.mark.parametrize(
    ("sender", "told"),
    [
        ("Anna@Example.com", "looks like Anna (anna@example.com)"),
        ("an\u200bna@example.com", "looks like Anna (anna@example.com)"),
        ("ａｎｎａ@example.com", "looks like Anna (anna@example.com)"),
        ("аnnа@example.com", "looks like Anna (anna@example.com)"),
        ("OWNER", "looks like owner"),
        ("оwner@evil.example", "looks like owner"),
        ("bаnk@example.com", "mixes Cyrillic and Latin letters"),
        ("иван@example.com", None),
        ("ben@example.com", None),
        ("日本ABCかな@example.com", None),
    ],
)
def test_twins_of_known_addresses_are_marked(sender: str, told: str | None) -> None:
    """Attack: a stranger writes from an address that looks like the owner's or a contact's."""
    assert Lookalikes(CONTACTS).describe(sender) == told


def test_contacts_waiting_marks_a_twin(fleet: Fleet) -> None:
    """Attack: a stranger named like the owner, in Cyrillic, waits to be allowed."""
    from_outside(fleet, "it is me", "оwnеr")
    try:
        assert "looks like owner" in fleet.butlers("contacts", "waiting").stdout
    finally:
        fleet.call("switchboard", "contacts_block", {"channel": "email", "identity": "оwnеr"})
