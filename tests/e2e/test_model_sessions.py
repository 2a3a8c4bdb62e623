"""Messages that only a model can answer: real CLIs, real daemons in processes of their own, a fake model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import npm
from support.fake_model import Hang, ModelThread, Say, Use, in_prompt
from support.fleet import BUTLERS, Fleet, wait_for
from support.offline import offline

__all__ = ["offline"]

KEYS = {
    "claude-code": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "codex": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}
KEEP = Use("item_create", collection="shopping", data={"name": "milk"})
REPLY = Use("notify", message="Milk is on the list.", intent="reply")


@pytest.fixture
def thinking(offline: None) -> Iterator[ModelThread]:
    with ModelThread() as thread:
        yield thread


@pytest.fixture(scope="module")
def programs() -> Path:
    return npm.installed("clis")


@pytest.fixture
def fleet(template_home: Path, offline: None) -> Iterator[Fleet]:
    """Without a network, as the CLIs that it starts."""
    running = Fleet.copy_of(template_home)
    try:
        for name in BUTLERS:
            if name != "general":
                running.start(name)
        yield running
    finally:
        running.close()


def environment(runtime: str, thinking: ModelThread, programs: Path) -> dict[str, str]:
    """``auto`` takes the one CLI that has a credential."""
    key, address, path = KEYS[runtime]
    return {
        key: "a-key-for-tests",
        address: thinking.model.url + path,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }


def start(fleet: Fleet, env: dict[str, str]) -> None:
    fleet.start("general", **env)
    for name in BUTLERS:
        fleet.wait_healthy(name)


def items(fleet: Fleet) -> list[Any]:
    return [
        json.loads(row["data"]) for row in fleet.rows("SELECT data FROM general.collection_items")
    ]


def sessions(fleet: Fleet) -> list[dict[str, Any]]:
    rows = fleet.rows("SELECT * FROM general.sessions ORDER BY started_at")
    return [dict(row) for row in rows]


def processes_of(fleet: Fleet) -> list[int]:
    """The processes whose HOME is a session's own folder."""
    mark = f"HOME={fleet.home}/sessions/".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(variable.startswith(mark) for variable in variables):
            found.append(int(folder.name))
    return found


@pytest.mark.scenario("S001-03")
@pytest.mark.parametrize("runtime", KEYS)
def test_a_message_is_thought_about_and_answered(
    fleet: Fleet, thinking: ModelThread, programs: Path, runtime: str
) -> None:
    start(fleet, environment(runtime, thinking, programs))
    script = in_prompt(KEEP, REPLY, Say("All done."))
    sent = fleet.send(f"we are out of milk {script}")
    assert [reply.message for reply in fleet.replies(sent)] == ["Milk is on the list."]
    assert items(fleet) == [{"name": "milk"}]
    (session,) = wait_for(
        "the session to end", lambda: [s for s in sessions(fleet) if s["completed_at"]] or None
    )
    assert session["runtime"] == runtime
    assert (session["outcome"], session["success"], session["error"]) == ("ok", True, None)
    assert session["output"] == "All done."
    assert session["prompt"] == f"we are out of milk {script}"
    assert session["trigger_source"] == "route"
    assert session["access"] == "sealed"
    assert session["input_tokens"] > 0
    assert session["output_tokens"] > 0
    assert session["duration_ms"] > 0
    assert len(session["trace_id"]) == 32
    calls = fleet.rows(
        "SELECT tool, arguments, ok FROM general.tool_calls WHERE session_id = $1 ORDER BY id",
        session["id"],
    )
    assert [(call["tool"], call["ok"]) for call in calls] == [
        ("item_create", True),
        ("notify", True),
    ]
    asked = [turn for turn in thinking.model.turns if script in turn.user]
    assert all("a-key-for-tests" not in json.dumps(turn.body) for turn in asked)
    offered = {name.rpartition("__")[2] or name for name in asked[0].offered}
    assert not {"trigger", "tick", "sessions_stop"} & offered, "what is the owner's is not offered"
    others = {name for name in BUTLERS if name != "general"}
    assert not any(f"__{other}__" in name for other in others for name in asked[0].offered)
    assert "General" in asked[0].system, "its CLAUDE.md, with what that refers to"
    assert processes_of(fleet) == []
    folders = fleet.home / "sessions" / "general"
    wait_for("its folder to be gone", lambda: not list(folders.glob("*/*")))


@pytest.mark.parametrize("runtime", KEYS)
def test_a_butler_that_is_killed_leaves_no_orphan_and_goes_on_without_repeating(
    fleet: Fleet, thinking: ModelThread, programs: Path, runtime: str
) -> None:
    env = environment(runtime, thinking, programs)
    start(fleet, env)
    script = in_prompt(KEEP, Hang())
    sent = fleet.send(f"we are out of milk {script}")
    wait_for("the model to hang", lambda: thinking.model.hanging or None)
    assert items(fleet) == [{"name": "milk"}]
    assert processes_of(fleet)

    fleet.kill("general")
    wait_for("the CLI to be gone", lambda: not processes_of(fleet))
    # The second session finds what the first did in its prompt, and the same script in the message: its
    # first call is made again, and returns what it returned then.
    thinking.model.script = []
    thinking.release()
    start(fleet, env)
    assert fleet.replies(sent)
    assert items(fleet) == [{"name": "milk"}]
    first, second = wait_for(
        "both sessions to have ended",
        lambda: (ended := sessions(fleet)) and all(s["completed_at"] for s in ended) and ended,
    )
    assert (first["outcome"], second["outcome"]) == ("crashed", "ok")
    assert first["request_id"] == second["request_id"]
    told = [turn for turn in thinking.model.turns if script in turn.user][-1]
    assert "item_create" in told.user
    assert "cut off" in told.user


def test_commands_show_stop_and_prove_sessions(fleet: Fleet, programs: Path) -> None:
    with ModelThread() as thinking:
        env = environment("claude-code", thinking, programs)
        start(fleet, env)
        sent = fleet.send(f"think for ever {in_prompt(Hang())}")
        wait_for("the model to hang", lambda: thinking.model.hanging or None)
        running = json.loads(fleet.butlers("sessions", "list", "--running", "--json").stdout)
        assert [(one["butler"], one["outcome"]) for one in running] == [("general", None)]

        stopped = fleet.butlers("stop-all", "--json")
        assert json.loads(stopped.stdout)["stopped"]["general"] == [running[0]["id"]]
        assert stopped.returncode == 0
        wait_for("the CLI to be gone", lambda: not processes_of(fleet))
        assert [reply.message for reply in fleet.replies(sent)] == ["The session was stopped."]
        shown = fleet.butlers("sessions", "show", running[0]["id"][:18])
        assert "outcome:         cancelled" in shown.stdout
        assert "think for ever" in shown.stdout
        table = fleet.butlers("sessions", "list").stdout
        assert "cancelled" in table
        missing = fleet.butlers("sessions", "stop", "00000000")
        assert missing.returncode == 1
        assert "hint:" in missing.stderr

        thinking.model.script = [Use("status"), Say("OK")]
        doctor = json.loads(fleet.butlers("doctor", "--json", **env).stdout)
        found = {check["name"]: check for check in doctor}
        assert found["claude-code"]["state"] == "ok"
        assert found["claude-code"]["credential"] == "ANTHROPIC_API_KEY"
        assert found["codex"]["version"] == "0.166.0"
        assert found["general"]["runtime"] == "claude-code"
        assert found["proof"]["state"] == "ok", found["proof"]
        thinks = [name for name in BUTLERS if found[name]["runtime"] != "reflex"]
        for name in thinks:
            assert f"{name} on claude-code called status" in found["proof"]["detail"]
