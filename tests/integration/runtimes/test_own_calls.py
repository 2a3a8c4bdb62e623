"""Calls of the CLI's own tools are recorded as the CLI reports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from butlers.domain.redaction import MASK
from butlers.sessions.session_log import DENIED
from support.cli_butler import OpenCliButler
from support.clis import CLAUDE, CODEX, GEMINI, Cli
from support.fake_model import Call, Say, Use
from support.in_process import InProcessButler

SCRIPT = "sh skills/errand/run.sh"
SECRET = "sk-ant-0123456789abcdef0123"

WRITE: dict[str, Callable[[str], Call]] = {
    "claude-code": lambda path: Call("Write", {"file_path": path, "content": f"key {SECRET}"}),
    "gemini": lambda path: Call("write_file", {"file_path": path, "content": f"key {SECRET}"}),
}


def furnish(tester: InProcessButler) -> None:
    folder = tester.directory / "skills" / "errand"
    folder.mkdir(parents=True)
    (folder / "run.sh").write_text("echo RAN\n")


def told(call: dict[str, Any]) -> tuple[Any, ...]:
    return (call["tool"], call["ok"], call["error"], call["of_cli"])


@pytest.mark.parametrize("cli", [CLAUDE, GEMINI], indirect=True, ids=lambda cli: cli.name)
async def test_runs_and_refusals_are_reported(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli, 'access = "workspace"', furnish) as butler:
        target = butler.directory / "made.md"
        run, write = cli.run(SCRIPT), WRITE[cli.name](str(target))
        butler.model.script = [Use(run), Use(write), Use("quick", text="a"), Say("Tried.")]
        ended = await butler.trigger()
        assert ended["outcome"] == "ok"
        async with butler.owner() as owner:
            shown = await owner.call("sessions_get", {"id": ended["session_id"]})
        assert not target.exists()
    ours, ran, refused = shown["tool_calls"]
    assert told(ours) == ("quick", True, None, False)
    assert told(ran) == (run.tool, True, None, True)
    assert ran["arguments"]["command"] == SCRIPT
    assert told(refused) == (write.tool, False, DENIED, True)
    assert refused["arguments"]["content"] == f"key {MASK}"
    assert ran["duration_ms"] is refused["duration_ms"] is None
    rows = await butler.rows("SELECT caller, request_id FROM tool_calls WHERE caller_kind='cli'")
    assert {(row["caller"], row["request_id"]) for row in rows} == {(cli.name, None)}


@pytest.mark.parametrize("cli", [CLAUDE, CODEX, GEMINI], indirect=True, ids=lambda cli: cli.name)
async def test_commands_of_a_full_session_are_recorded_with_their_result(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, 'access = "full"', furnish) as butler:
        bad = "ls no-such-folder-there"
        butler.model.script = [Use(cli.run(SCRIPT)), Use(cli.run(bad)), Say("Tried.")]
        ended = await butler.trigger()
        async with butler.owner() as owner:
            shown = await owner.call("sessions_get", {"id": ended["session_id"]})
    ran, failed = shown["tool_calls"]
    assert (ran["ok"], ran["of_cli"], ran["error"]) == (True, True, None)
    assert SCRIPT in str(ran["arguments"])
    assert bad in str(failed["arguments"])
    assert failed["of_cli"]
    # Gemini CLI calls a command that ran and said that it failed a success.
    assert (failed["ok"], bool(failed["error"])) == (
        (True, False) if cli is GEMINI else (False, True)
    )


async def test_refused_attempts_of_a_sealed_session_are_recorded(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli) as butler:
        attempt = replace(cli.run("touch made"), anyway=True)
        butler.model.script = [Use(attempt), Say("I could not.")]
        session = butler.message()
        await butler.run(session)
        async with butler.owner() as owner:
            shown = await owner.call("sessions_get", {"id": str(session.session_id)})
        assert not (butler.directory / "made").exists()
    (tried,) = shown["tool_calls"]
    assert told(tried) == (attempt.tool, False, DENIED, True)
