"""The command line as a person uses it, against a fleet started by ``butlers up``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from butlers.config.fleet import FleetConfig
from butlers.db.embedded import EmbeddedPostgres
from support.fleet import (
    BUTLERS,
    ROOT,
    Slot,
    butlers_environment,
    command,
    is_registered,
    wait_for,
)
from support.forked import run_butlers


@dataclass
class Terminal:
    """A person's shell: a home, a port offset, and the commands they type."""

    home: Path
    slot: Slot

    def butlers(
        self, *arguments: str, stdin: bytes | None = None, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        env = butlers_environment(self.home, self.slot.offset, **extra)
        return run_butlers(*arguments, env=env, cwd=self.home, stdin=stdin)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = open(self.home / "up.log", "ab")  # noqa: SIM115  (the child's own)
        with log:
            return subprocess.Popen(
                command(*arguments),
                env=butlers_environment(self.home, self.slot.offset),
                stdout=log,
                stderr=log,
                cwd=self.home,
            )

    @property
    def output(self) -> str:
        return (self.home / "up.log").read_text()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal(Path(tempfile.mkdtemp(prefix="bh-")), Slot())
    yield opened
    opened.slot.release()
    shutil.rmtree(opened.home, ignore_errors=True)


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A fleet from nothing: an empty home, one command."""
    terminal = Terminal(Path(tempfile.mkdtemp(prefix="bh-")), Slot())
    process = terminal.start("up")
    try:
        wait_for("the fleet to be up", lambda: "Butlers is up" in terminal.output or process.poll())
        assert process.poll() is None, terminal.output
        # "Up" means that a message finds its butler: every one is registered.
        assert all(is_registered(name, terminal.slot) for name in BUTLERS)
        yield terminal, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        terminal.slot.release()
        shutil.rmtree(terminal.home, ignore_errors=True)


Up = tuple[Terminal, subprocess.Popen[bytes]]


def test_up_shows_each_butler_and_an_example_command(up: Up) -> None:
    terminal, _ = up
    for name in ("switchboard", "messenger", "general", "health"):
        assert f"{name}: healthy on http://127.0.0.1:" in terminal.output
    assert "Butlers is up at http://127.0.0.1:" in terminal.output
    assert 'send "weight 80.4 kg" --wait' in terminal.output


def test_a_message_is_answered_and_the_row_is_shown(up: Up) -> None:
    terminal, _ = up
    said = terminal.butlers("send", "weight 80.4 kg", "--wait")
    assert (said.returncode, said.stdout) == (0, "Logged: weight 80.4 kg.\n"), said.stderr
    row = terminal.butlers("tool", "health", "measurement_latest", '{"type":"weight"}')
    assert json.loads(row.stdout)["value"] == "80.4"
    asked = terminal.butlers("send", "what is my weight?", "--wait", "--json")
    (reply,) = json.loads(asked.stdout)["replies"]
    assert reply["message"].startswith("Your weight was 80.4 kg")


def test_trigger_starts_a_session_and_prints_its_answer(up: Up) -> None:
    terminal, _ = up
    said = terminal.butlers("trigger", "general", "ping")
    assert (said.returncode, said.stdout) == (0, "pong\n")
    lost = terminal.butlers("trigger", "general", "sing me a song", "--json")
    assert lost.returncode == 1
    assert json.loads(lost.stdout)["outcome"] == "no-match"


def test_list_and_status_are_readable_and_json(up: Up) -> None:
    terminal, _ = up
    listed = json.loads(terminal.butlers("list", "--json").stdout)
    assert {row["name"]: row["state"] for row in listed} == dict.fromkeys(
        FleetConfig().roster, "running"
    )
    status = terminal.butlers("status")
    assert status.returncode == 0, status.stderr
    assert status.stdout.splitlines()[0].split() == [
        "NAME",
        "HEALTH",
        "UPTIME",
        "DATABASE",
        "WAITING",
        "DEAD",
        "QUESTIONS",
    ]
    assert all(
        state["health"] == "healthy"
        for state in json.loads(terminal.butlers("status", "--json").stdout)
    )


def test_second_up_on_the_same_home_is_refused(up: Up) -> None:
    terminal, process = up
    second = terminal.butlers("up")
    assert second.returncode == 1
    assert f"already runs from {terminal.home} (process {process.pid})" in second.stderr
    assert "hint: " in second.stderr


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "the message is empty"),
        (b" \n\t ", "the message is empty"),
        (b"nul \x00 byte", "NUL byte"),
        (b"bad \xff utf-8", "not valid UTF-8 at byte 4"),
        (b"x" * 1_000_001, "the limit is 1,000,000"),
    ],
    ids=["empty", "blank", "nul", "utf-8", "large"],
)
def test_invalid_message_is_rejected_with_a_hint(up: Up, message: bytes, said: str) -> None:
    terminal, _ = up
    refused = terminal.butlers("send", "-", stdin=message)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert said in refused.stderr
    assert "hint: " in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tool", "nobody", "status"), "no butler 'nobody' runs"),
        (("tool", "health", "fly"), "no tool 'fly'"),
        (("tool", "health", "measurement_latest", "{type"), "not JSON"),
        (("tool", "health", "measurement_latest", "[1]"), "not a JSON object"),
        (("tool", "health", "measurement_latest", "{}"), "type"),
        (("tool", "health", "route.execute", "{}"), "owner may not call route.execute"),
    ],
)
def test_wrong_tool_call_is_an_error_with_a_reason(
    up: Up, arguments: tuple[str, ...], said: str
) -> None:
    refused = up[0].butlers(*arguments)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert refused.stderr.startswith("error: ")


def test_an_unknown_command_is_a_usage_error(terminal: Terminal) -> None:
    refused = terminal.butlers("fly")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


def test_without_a_fleet_the_error_says_how_to_start_one(terminal: Terminal) -> None:
    refused = terminal.butlers("send", "hello")
    assert refused.returncode == 1
    assert "hint: start the fleet with `make up`" in refused.stderr
    assert terminal.butlers("status").returncode == 1


def test_ctrl_c_stops_the_fleet_and_its_database(terminal: Terminal) -> None:
    process = terminal.start("up")
    wait_for("the fleet to be up", lambda: "Butlers is up" in terminal.output or process.poll())
    assert EmbeddedPostgres(terminal.home).is_running()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0, terminal.output
    assert not EmbeddedPostgres(terminal.home).is_running()
    assert list((terminal.home / "run").iterdir()) == []
    assert "Traceback" not in terminal.output


def test_taken_port_error_names_its_holder(terminal: Terminal) -> None:
    port = 40103 + terminal.slot.offset
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()
        refused = terminal.butlers("run", "--config", str(ROOT / "roster" / "health"))
    assert refused.returncode == 1
    assert f"port {port}" in refused.stderr
    assert f"process {os.getpid()} (" in refused.stderr
    assert Path(sys.executable).name in refused.stderr or "pytest" in refused.stderr
    assert "hint: " in refused.stderr


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[butler]\nname = "x"\nport = = 1\n', ":3: column 8"),
        ('[butler]\nname = "x"\nprot = 1\n', "did you mean"),
        ('[butler]\nname = "x"\nport = 40190\ndescription = "${NOPE}"\n', "NOPE"),
        pytest.param(
            "[butler]\nport = 40190\n", "name is required", marks=pytest.mark.scenario("S002-05")
        ),
        pytest.param(None, "the file does not exist", marks=pytest.mark.scenario("S002-03")),
    ],
    ids=["syntax", "unknown key", "variable", "missing", "no file"],
)
def test_invalid_config_ends_the_start_before_anything_is_created(
    terminal: Terminal, toml: str | None, said: str
) -> None:
    (terminal.home / "x").mkdir()
    if toml is not None:
        (terminal.home / "x" / "butler.toml").write_text(toml)
    refused = terminal.butlers("run", "--config", "x")
    assert refused.returncode == 1
    assert "x/butler.toml" in refused.stderr
    assert said in refused.stderr
    assert not (terminal.home / "postgres").exists()  # nothing is provisioned
    assert not (terminal.home / "run").exists()  # nothing is served


def test_second_db_migrate_has_nothing_to_do(terminal: Terminal) -> None:
    first = json.loads(terminal.butlers("db", "migrate", "--json").stdout)
    assert first["health"][0] == "core_001"
    assert {"health_001", "approvals_001", "memory_001"} <= set(first["health"])
    second = terminal.butlers("db", "migrate")
    assert second.stdout.splitlines()[0] == "switchboard: up to date"
    url = terminal.butlers("db", "url").stdout.strip()
    assert url.startswith("postgresql://postgres:")


def test_waiting_ends_with_the_message_and_shows_its_steps(up: Up) -> None:
    """A reaction is no end, and --json has every step as an event."""
    terminal, _ = up
    said = terminal.butlers("send", "weight 80.7 kg", "--wait", "--json")
    document = json.loads(said.stdout)
    assert document["ended"] is True
    assert [reply["message"] for reply in document["replies"]] == ["Logged: weight 80.7 kg."]
    events = [event["event"] for event in document["events"]]
    assert (events[0], events[-1]) == ("accepted", "ended")
    assert {"routed", "called", "reply"} <= set(events)
    (routed,) = (event for event in document["events"] if event["event"] == "routed")
    assert (routed["to"], routed["by"]) == ("health", "reflex")
    kept = terminal.butlers("send", "sing me a song of the sea", "--wait")
    assert kept.returncode == 0, "a message that is kept without a model does not hang the command"
    assert terminal.butlers("mail").stdout == ""
