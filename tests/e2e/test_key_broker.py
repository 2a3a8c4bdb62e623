"""The key broker in real daemons: `butlers run` processes, real CLIs and a fake model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from butlers.broker.ledger import Entry, Ledger
from support import npm
from support.fake_model import Hang, ModelThread, Use, in_prompt
from support.fake_model.turn import CACHED, INPUT, OUTPUT
from support.fleet import BUTLERS, ROOT, Fleet, wait_for
from support.offline import offline

__all__ = ["offline"]

KEYS = {
    "claude-code": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "", INPUT + CACHED + OUTPUT),
    "codex": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1", INPUT + OUTPUT),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "", INPUT + OUTPUT),
}
SECRET = "planted-key-5b1f0c"
KEEP = Use("item_create", collection="shopping", data={"name": "milk"})


@pytest.fixture
def thinking(offline: None) -> Iterator[ModelThread]:
    with ModelThread() as thread:
        yield thread


@pytest.fixture(scope="module")
def programs() -> Path:
    return npm.installed("clis")


@pytest.fixture
def fleet(template_home: Path, offline: None) -> Iterator[Fleet]:
    running = Fleet.copy_of(template_home)
    try:
        yield running
    finally:
        running.close()


def start(fleet: Fleet, runtime: str, thinking: ModelThread, programs: Path) -> None:
    key, address, path, _ = KEYS[runtime]
    fleet.environments["general"] = {
        key: SECRET,
        address: thinking.model.url + path,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    for name in BUTLERS:
        fleet.start(name)
    for name in BUTLERS:
        fleet.wait_healthy(name)


def configure(fleet: Fleet, lines: str) -> None:
    """Run general from a copy of its folder with these lines at the end of its butler.toml."""
    folder = fleet.home / "configured" / "general"
    source = ROOT / "roster" / "general"
    for file in source.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            target = folder / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    toml = folder / "butler.toml"
    toml.write_text(toml.read_text() + lines)
    fleet.folders["general"] = folder


def ledger(fleet: Fleet) -> list[Entry]:
    return list(Ledger(fleet.home).since(datetime.now(UTC) - timedelta(hours=1)))


def session(fleet: Fleet) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        rows = fleet.rows("SELECT * FROM general.sessions ORDER BY started_at")
        return dict(rows[-1]) if rows and all(row["completed_at"] for row in rows) else None

    return wait_for("the session to end", ended)


def session_processes(fleet: Fleet) -> list[psutil.Process]:
    mark = f"{fleet.home}/sessions/"
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(mark):
                found += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("runtime", KEYS)
def test_session_has_no_key_and_its_usage_is_in_the_ledger(
    fleet: Fleet, thinking: ModelThread, programs: Path, runtime: str
) -> None:
    start(fleet, runtime, thinking, programs)
    sent = fleet.send(f"we are out of milk {in_prompt(KEEP, Hang())}")
    wait_for("the model to hang", lambda: thinking.model.hanging or None)
    processes = session_processes(fleet)
    assert processes
    for process in processes:
        for name in ("environ", "cmdline"):
            content = Path(f"/proc/{process.pid}/{name}").read_bytes()
            assert SECRET.encode() not in content, (process.pid, name)
    for file in (fleet.home / "sessions").rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert SECRET.encode() not in file.read_bytes(), file
    thinking.release()
    assert [reply.message for reply in fleet.replies(sent)] == ["Released."]
    assert all(SECRET in str(request.headers) for request in thinking.model.requests)
    row = session(fleet)
    assert row["outcome"] == "ok"
    metered = ledger(fleet)
    assert {entry.session for entry in metered} == {str(row["id"])}
    assert len(metered) == len(thinking.model.turns) == 2
    shown = json.loads(fleet.butlers("sessions", "show", str(row["id"]), "--json").stdout)
    used = shown["input_tokens"] + shown["output_tokens"]
    assert used == sum(entry.tokens for entry in metered) == 2 * KEYS[runtime][3]

    (costs,) = json.loads(fleet.butlers("costs", "--json").stdout)["rows"]
    assert (costs["butler"], costs["requests"]) == ("general", 2)
    for grouping in ("model", "day", "session"):
        (costs,) = json.loads(fleet.butlers("costs", "--by", grouping, "--json").stdout)["rows"]
        assert costs["input_tokens"] + costs["output_tokens"] == used
    assert "GENERAL" not in fleet.butlers("costs").stdout.splitlines()[0]


@pytest.mark.parametrize("runtime", KEYS)
def test_person_is_told_what_a_looping_session_did(
    fleet: Fleet, thinking: ModelThread, programs: Path, runtime: str
) -> None:
    budget = 3_000
    configure(fleet, f"[butler.budget]\ndaily_tokens = {budget}\n")
    start(fleet, runtime, thinking, programs)
    sent = fleet.send(f"we are out of milk {in_prompt(*[KEEP] * 20)}")
    (reply,) = fleet.replies(sent)
    assert reply.message.startswith("I had to stop before I was finished: today's budget of 3,000")
    assert reply.message.endswith("Done until then: item_create (3 times).")
    used = sum(entry.tokens for entry in ledger(fleet))
    assert budget <= used < budget + KEYS[runtime][3]
    assert len(thinking.model.turns) == 3
    assert session(fleet)["outcome"] == "over-budget"


@pytest.mark.parametrize("runtime", ["claude-code", "codex"])
def test_usage_survives_a_killed_daemon(
    fleet: Fleet, thinking: ModelThread, programs: Path, runtime: str
) -> None:
    start(fleet, runtime, thinking, programs)
    sent = fleet.send(f"we are out of milk {in_prompt(KEEP, Hang())}")
    wait_for("the model to hang", lambda: thinking.model.hanging or None)
    fleet.kill("general")
    (first,) = ledger(fleet)
    assert first.tokens == KEYS[runtime][3]
    thinking.release()
    fleet.start("general")
    fleet.wait_healthy("general")
    assert fleet.replies(sent)
    session(fleet)
    rows = fleet.rows("SELECT * FROM general.sessions ORDER BY started_at")
    crashed = next(row for row in rows if str(row["id"]) == first.session)
    assert crashed["outcome"] == "crashed"
    assert crashed["input_tokens"] + crashed["output_tokens"] == first.tokens


def test_without_the_broker_a_session_has_the_key(
    fleet: Fleet, thinking: ModelThread, programs: Path
) -> None:
    file = fleet.home / "fleet.toml"
    text = file.read_text() if file.exists() else ""
    file.write_text(text.replace("broker = true\n", "") + "\nbroker = false\n")
    start(fleet, "claude-code", thinking, programs)
    sent = fleet.send(f"hello there {in_prompt(Hang())}")
    wait_for("the model to hang", lambda: thinking.model.hanging or None)
    environments = [process.environ() for process in session_processes(fleet)]
    assert any(one.get("ANTHROPIC_API_KEY") == SECRET for one in environments)
    thinking.release()
    assert [reply.message for reply in fleet.replies(sent)] == ["Released."]
    assert ledger(fleet) == []
    assert session(fleet)["input_tokens"] > 0
