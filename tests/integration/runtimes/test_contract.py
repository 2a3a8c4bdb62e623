"""The contract of every CLI: the same cases, each shown by what really happened.

That a session was kept from something is never taken from its own words: what counts is the disk, our tables
and what the model was sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from butlers.domain.errors import InternalError
from butlers.domain.session import Access, Outcome
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import Grants
from support.cli_session import SYSTEM_PROMPT, CliSession
from support.fake_model import Call, Fail, Hang, Say, Use

# The names are those that Gemini CLI puts something in place of.
NASTY = """

  PERIWINKLE ${AgentSkills} ${SubAgents} ${AvailableTools}
${mcp_tester_write_ToolName} ${list_directory_ToolName}
$HOME ${HOME} $(id) `id` $& $$ $1 %s {x} {{x}} {{{x}}} <% x %> "double" 'single' \\ \\n \\u0041
@AGENTS.md see @./secret.txt and !{ls} @{secret.txt}



three empty lines above, a tab\t, a zero-width\u200b, Grüße 🎩, and a line end that stays \x20
<!-- a comment -->

"""

INSTRUCTIONS = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude/CLAUDE.md",
    "AGENTS.md",
    "AGENTS.override.md",
    "GEMINI.md",
)


def error(status: int, kind: str) -> Fail:
    """An API's error, with what each vendor's client looks for."""
    message = f"The model is not to be had ({kind})."
    body = {"type": kind, "message": message, "code": status, "status": kind.upper()}
    return Fail(status, {"type": "error", "error": body})


NO_MONEY = Fail(
    402, error(402, "billing_error: your credit balance is too low to access the API").body
)


async def rows(cli_session: CliSession) -> list[str]:
    return [
        row["text"]
        for row in await cli_session.tester.rows("SELECT text FROM entries ORDER BY number")
    ]


async def calls(cli_session: CliSession) -> list[dict[str, Any]]:
    """Return the texts that the butler has stored."""
    return await cli_session.tester.rows(
        "SELECT tool, ok, error, result_bytes FROM tool_calls ORDER BY id"
    )


# -- what works --------------------------------------------------------------------------------


async def test_a_tool_call_and_an_answer(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("write", text="milk"), Say("It is written.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert result.text == "It is written."
    (call,) = result.tool_calls
    assert (call.tool, call.arguments, call.ok) == ("write", {"text": "milk"}, True)
    assert "milk" in str(call.result)
    assert await rows(cli_session) == ["milk"]
    assert "milk" in cli_session.model.turns[-1].results[0]
    assert result.denials == ()


async def test_usage_and_model_are_reported(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("quick", text="a"), Say("Done.")]
    result = await cli_session.invoke()
    assert result.usage.output_tokens == 2 * 25
    assert result.usage.cached_tokens == 2 * 200
    assert result.usage.input_tokens in (
        2 * 1000,
        2 * 1200,
    )  # vendors count the cached ones in or out
    assert result.model == cli_session.cli.model
    assert {turn.model for turn in cli_session.model.turns} == {cli_session.cli.model}


async def test_two_turns_and_two_calls_at_once(cli_session: CliSession) -> None:
    both = Use(Call("write", {"text": "eggs"}), Call("quick", {"text": "hello"}))
    cli_session.model.script = [Use("write", text="milk"), both, Say("All is done.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    first, *together = [call.tool for call in result.tool_calls]
    assert (first, sorted(together)) == ("write", ["quick", "write"])
    assert all(call.ok for call in result.tool_calls)
    assert await rows(cli_session) == ["milk", "eggs"]


async def test_the_prompts_arrive_as_they_are(cli_session: CliSession) -> None:
    prompt = f"Grüße 🎩 «\\n» {'x' * 300_000} end"
    result = await cli_session.invoke(prompt)
    assert result.outcome is Outcome.OK
    (turn,) = cli_session.model.turns
    assert prompt in turn.user
    assert SYSTEM_PROMPT in turn.system


async def test_the_system_prompt_arrives_to_the_byte(cli_session: CliSession) -> None:
    """Also what a CLI would take for a template of its own, or for layout that it may tidy up."""
    cli_session.system_prompt = NASTY
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    (turn,) = cli_session.model.turns
    assert turn.strings.count(NASTY) == 1
    assert turn.text.count("PERIWINKLE") == 1, "and nothing of it twice"


async def test_a_prompt_is_never_a_command(cli_session: CliSession) -> None:
    """A prompt goes to the model as text, whatever its first character means to the CLI."""
    prompts = ("/help", "/clear", "/cost now", "@butler.toml", "!touch planted", "-h")
    for prompt in prompts:
        result = await cli_session.invoke(prompt)
        assert (result.outcome, result.text) == (Outcome.OK, "Done.")
    assert len(cli_session.model.turns) == len(prompts)
    for prompt, turn in zip(prompts, cli_session.model.turns, strict=True):
        assert prompt in turn.user
        assert "[modules.bench]" not in turn.text
    assert not (cli_session.cwd / "planted").exists()


async def test_a_file_that_a_prompt_names_is_not_read(
    cli_session: CliSession, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("PERIWINKLE")
    (cli_session.cwd / "inside.txt").write_text("PERIWINKLE")
    names = f"@{tmp_path}/secret.txt @inside.txt @./inside.txt @../secret.txt"
    result = await cli_session.invoke(f"Look at {names} please.")
    assert result.outcome is Outcome.OK
    assert cli_session.model.turns
    assert not any("PERIWINKLE" in turn.text for turn in cli_session.model.turns)


async def test_a_result_of_200_kilobytes(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("say", text="0123456789", times=20_000), Say("That was long.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "That was long.")
    (call,) = result.tool_calls
    assert call.ok
    assert "0123456789" in str(call.result)
    (made,) = await calls(cli_session)
    assert (made["tool"], made["ok"]) == ("say", True)
    assert made["result_bytes"] >= 200_000, "it was served whole"
    assert len(cli_session.model.turns) == 2, "and asked for once"
    (told,) = cli_session.model.turns[-1].results
    assert "0123456789" * 10 in told, "its beginning, or all of it, reaches the model"
    assert cli_session.processes() == []


async def test_a_tool_that_raises(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("write_and_fail", text="x"), Say("It did not work.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "It did not work.")
    (call,) = result.tool_calls
    assert (call.tool, call.ok) == ("write_and_fail", False)
    assert "no such shelf" in cli_session.model.turns[-1].results[0]
    assert await rows(cli_session) == []
    (made,) = await calls(cli_session)
    assert (made["tool"], made["ok"]) == ("write_and_fail", False)
    assert "no such shelf" in made["error"]


async def test_the_owners_own_arguments_are_added(cli_session: CliSession) -> None:
    cli_session.args = ("--no-such-argument",)
    result = await cli_session.invoke()
    assert result.outcome is Outcome.CRASHED
    assert result.error
    assert cli_session.model.turns == []


# -- what is not reached -------------------------------------------------------------------------


async def test_a_server_that_is_down(cli_session: CliSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        cli_session.url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        cli_session.model.script = [Use("write", text="milk"), Say("Done.")]
        result = await cli_session.invoke()
    assert result.outcome is Outcome.MCP_UNAVAILABLE
    assert result.error
    assert await rows(cli_session) == []
    assert await calls(cli_session) == []
    assert not any(turn.find("write") for turn in cli_session.model.turns)
    assert cli_session.processes() == []


async def test_invalid_token_makes_the_butler_unreachable(cli_session: CliSession) -> None:
    """Of another installation, say: the butler is there, and says no to all of it."""
    cli_session.token = "bs.nobody"
    cli_session.model.script = [Use("write", text="milk"), Say("Done.")]
    result = await cli_session.invoke()
    if (
        result.outcome is not Outcome.MCP_UNAVAILABLE
    ):  # one CLI does not tell; the butler's log does
        assert result.tool_calls == ()
        assert not any(turn.find("write") for turn in cli_session.model.turns)
    assert await rows(cli_session) == []
    assert not any(call["ok"] for call in await calls(cli_session))


# -- the model fails -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail", "outcome"),
    [
        (error(400, "invalid_request_error"), Outcome.REJECTED),
        (error(401, "authentication_error"), Outcome.NO_CREDENTIAL),
        (error(429, "rate_limit_error"), Outcome.RATE_LIMITED),
        (error(503, "service_unavailable"), Outcome.RATE_LIMITED),
        (error(529, "overloaded_error"), Outcome.RATE_LIMITED),
        (error(500, "api_error"), Outcome.MODEL_UNAVAILABLE),
        (NO_MONEY, Outcome.NO_CREDIT),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_a_model_that_fails(cli_session: CliSession, fail: Fail, outcome: Outcome) -> None:
    cli_session.model.script = [fail]
    result = await cli_session.invoke()
    # After repeated failures the broker holds requests back and answers them as a rate limit does.
    held_back = {Outcome.RATE_LIMITED} if outcome is Outcome.MODEL_UNAVAILABLE else set()
    assert result.outcome in {outcome, *held_back}
    assert result.error
    assert result.text == ""  # an error is not what the session said
    assert cli_session.model.turns
    assert not any(turn.results for turn in cli_session.model.turns)
    assert await calls(cli_session) == []
    assert cli_session.processes() == []


async def test_a_model_that_fails_once_is_asked_again(cli_session: CliSession) -> None:
    once = replace(error(529, "overloaded_error"), times=1)
    cli_session.model.script = [Use("write", text="milk"), once, Say("After all.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "After all.")
    assert await rows(cli_session) == ["milk"]
    assert len(await calls(cli_session)) == 1, "what was done is not done again"


async def test_no_credential_at_all(cli_session: CliSession) -> None:
    given = dict(cli_session.environment)
    del given[cli_session.cli.no_key]
    cli_session.cli = replace(cli_session.cli, environment=lambda _: given)
    result = await cli_session.invoke()
    assert result.outcome is Outcome.NO_CREDENTIAL
    assert result.error
    assert cli_session.model.turns == []


# -- it hangs, is ended, is cancelled --------------------------------------------------------------


async def test_cli_that_hangs_at_the_start_times_out(
    cli_session: CliSession, tmp_path: Path
) -> None:
    """A CLI that says nothing at all, which has been seen to last for hours."""
    cli_session.adapter = cli_session.cli.adapter(_program(tmp_path, "exec sleep 3600"))
    cli_session.limits = TimeLimits(startup_s=0.5, silence_s=60, total_s=60)
    result = await cli_session.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert result.error
    assert cli_session.model.turns == []
    assert await calls(cli_session) == []
    assert cli_session.processes() == []
    assert cli_session.tester.butler.guard.count == 0


async def test_a_server_that_takes_the_call_and_never_answers(cli_session: CliSession) -> None:
    """The CLI itself hangs, on its way to the butler."""
    never = asyncio.Event()

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        cli_session.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        cli_session.limits = TimeLimits(startup_s=3, silence_s=3, total_s=6)
        cli_session.model.script = [Use("write", text="milk"), Say("Done.")]
        result = await cli_session.invoke()
        never.set()
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.MCP_UNAVAILABLE)
    assert result.error
    assert await rows(cli_session) == []
    assert await calls(cli_session) == []
    assert not any(turn.find("write") for turn in cli_session.model.turns)
    assert cli_session.processes() == []


async def test_model_that_never_answers_times_out(cli_session: CliSession) -> None:
    cli_session.model.script = [Hang()]
    cli_session.limits = TimeLimits(startup_s=60, silence_s=3, total_s=60)
    result = await cli_session.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert result.text == ""
    assert result.tool_calls == ()
    assert cli_session.processes() == []


async def test_cli_that_hangs_in_the_middle_times_out(cli_session: CliSession) -> None:
    """Calls before the end happened once, calls after it did not happen."""
    cli_session.model.script = [
        Use("write", text="milk"),
        Hang(),
        Use("write", text="eggs"),
        Say("Late."),
    ]
    cli_session.limits = TimeLimits(startup_s=60, silence_s=5, total_s=120)
    result = await cli_session.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert (result.error, result.text) != (None, "Late.")
    (call,) = result.tool_calls
    assert (call.tool, call.ok) == ("write", True)
    assert cli_session.processes() == []
    assert cli_session.tester.butler.guard.count == 0
    cli_session.model.release()
    assert await rows(cli_session) == ["milk"]
    assert [(made["tool"], made["ok"]) for made in await calls(cli_session)] == [("write", True)]
    assert [len(turn.results) for turn in cli_session.model.turns] == [0, 1], (
        "asked no more after it"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_cli_killed_from_outside_is_a_crash(
    cli_session: CliSession, number: signal.Signals
) -> None:
    cli_session.model.script = [Use("write", text="milk"), Hang()]
    async with cli_session.begun() as session:
        for process in (
            cli_session.processes() if number is signal.SIGKILL else [cli_session.program()]
        ):
            process.send_signal(number)
        result = await session
    assert result.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)
    assert result.error
    assert [call.tool for call in result.tool_calls] == ["write"]
    assert await rows(cli_session) == ["milk"]
    assert len(await calls(cli_session)) == 1
    assert cli_session.processes() == []


async def test_a_cancelled_session_leaves_nothing(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("write", text="milk"), Hang()]
    async with cli_session.begun() as session:
        known = cli_session.processes()
        assert known
        session.cancel()
        with pytest.raises(asyncio.CancelledError):
            await session
        assert not any(one.is_running() for one in known)
    assert cli_session.processes() == []
    assert cli_session.tester.butler.guard.count == 0
    cli_session.model.release()
    assert await rows(cli_session) == ["milk"]
    assert len(await calls(cli_session)) == 1


# -- what it may touch -------------------------------------------------------------------------------


@pytest.mark.parametrize("access", list(Access))
async def test_unsupported_access_level_is_refused(cli_session: CliSession, access: Access) -> None:
    cli_session.grants = Grants(access)
    if cli_session.adapter.holds(access):
        assert (await cli_session.invoke()).outcome is Outcome.OK
    else:
        with pytest.raises(InternalError):
            await cli_session.invoke()
        assert cli_session.model.turns == []


async def test_sealed_session_has_only_its_butlers_tools(
    cli_session: CliSession, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    attempt = replace(cli_session.cli.run(f"touch {planted}"), anyway=True)
    cli_session.model.script = [Use(attempt), Say("I could not.")]
    result = await cli_session.invoke()
    async with cli_session.tester.session() as session:
        served = {tool["name"] for tool in await session.list_tools()}
    assert "quick" in served
    offered = sorted(
        [*(f"{cli_session.cli.prefix}{name}" for name in served), *cli_session.cli.beside]
    )
    assert all(sorted(turn.offered) == offered for turn in cli_session.model.turns)
    assert not planted.exists()
    assert result.outcome is Outcome.DENIED
    assert result.denials
    assert not any(call.ok for call in result.tool_calls)
    assert await calls(cli_session) == [], "nothing of it came to the butler"
    (answer,) = cli_session.model.turns[-1].results
    assert answer, "the model was told that it may not"


async def test_a_tool_that_this_session_was_not_given(cli_session: CliSession) -> None:
    """The butler's own wall: what a session was not given it is neither offered nor served."""
    cli_session.tools = frozenset({"quick"})
    cli_session.model.script = [Use("quick"), Say("Done.")]
    await cli_session.invoke()
    offered = cli_session.model.turns[0].find("quick")
    assert offered
    assert cli_session.model.turns[0].find("write") is None
    cli_session.model.script = [
        Use(Call(offered.removesuffix("quick") + "write", {"text": "x"}, anyway=True))
    ]
    result = await cli_session.invoke()
    assert not any(call.ok for call in result.tool_calls)
    assert await rows(cli_session) == []
    assert [call["tool"] for call in await calls(cli_session) if call["ok"]] == ["quick"]
    last = cli_session.model.turns[-1]
    assert last.find("write") is None
    (answer,) = last.results
    assert "number" not in answer, "and nothing of a row"


async def test_full_session_has_shell_tools(cli_session: CliSession, tmp_path: Path) -> None:
    cli_session.grants = Grants(Access.FULL)
    made = tmp_path / "made"
    make = cli_session.cli.run(f"touch {made}")
    cli_session.model.script = [Use(make), Use("write", text="milk"), Say("Done.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert made.exists()
    assert await rows(cli_session) == ["milk"]


async def test_processes_of_a_full_session_end_with_it(
    cli_session: CliSession, tmp_path: Path
) -> None:
    """Also in a session of its own, with no parent, and after the CLI has left."""
    cli_session.grants = Grants(Access.FULL)
    noted = tmp_path / "started"
    mark = (
        f"{3600 + uuid4().int % 10**9}"  # found by its command: its pid is one of the sandbox's own
    )
    detach = f"(setsid sh -c 'touch {noted}; exec sleep {mark}' >/dev/null 2>&1 &)"
    detach += f"; until [ -e {noted} ]; do sleep 0.01; done"
    cli_session.model.script = [Use(cli_session.cli.run(detach)), Say("Done.")]
    result = await cli_session.invoke()
    assert result.outcome is Outcome.OK
    assert noted.exists()
    assert not any(mark in (one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))


# -- what reaches it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("access", [Access.SEALED, Access.FULL])
async def test_foreign_servers_and_hooks_are_not_loaded(
    cli_session: CliSession, tmp_path: Path, access: Access
) -> None:
    """Planted where the CLI looks for them: beside the butler's files, and in its home."""
    cli_session.grants = Grants(access)
    mark = tmp_path / "mark"
    async with _foreign_server() as (url, visits):
        for folder in (cli_session.cwd, cli_session.private / "home"):
            for name, content in cli_session.cli.plant.items():
                file = folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content.replace("@URL", url).replace("@MARK", str(mark)))
        result = await cli_session.invoke()
        assert result.outcome is Outcome.OK
        assert visits == []
    assert not mark.exists()
    assert not any("foreign" in name for turn in cli_session.model.turns for name in turn.offered)


@pytest.mark.parametrize("access", list(Access))
async def test_instruction_files_are_not_read_by_the_cli(
    cli_session: CliSession, tmp_path: Path, access: Access
) -> None:
    """The butler's CLAUDE.md is the system prompt already; nothing of these may come a second time. Planted
    where CLIs look: from where they stand up to the root of a checkout, and beside a file that is read."""
    if not cli_session.starts(access):
        return  # it is sealed, or starts cold: asked elsewhere
    notes = cli_session.cwd / "notes"
    plain = notes / "plain.txt"
    outer, cli_session.private = cli_session.private, cli_session.private / "session"
    for root in (tmp_path, outer):
        (root / ".git").mkdir()
    for folder in (notes, cli_session.cwd, tmp_path, outer, cli_session.private / "home"):
        for name in INSTRUCTIONS:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("The word is PERIWINKLE.\n")
    plain.write_text("It is plain.\n")
    cli_session.grants = Grants(access, (cli_session.cwd,), (cli_session.cwd / "AGENTS.md",))
    if access is not Access.SEALED:
        cli_session.model.script = [Use(cli_session.cli.read(plain)), Say("I have read it.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert cli_session.model.turns
    if access is not Access.SEALED:
        assert "It is plain." in cli_session.model.turns[-1].text
    assert not any("PERIWINKLE" in turn.text for turn in cli_session.model.turns)


async def test_session_environment_has_nothing_of_the_host(
    cli_session: CliSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {f"PLANTED_{number}": f"host-secret-{number}" for number in range(50)}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    seen = cli_session.private / "tmp" / "environment"
    copy = f'[ -z "$DECLARED" ] || cp /proc/$$/environ {seen}'  # Codex is also asked for its models
    cli_session.adapter = cli_session.cli.adapter(_program(tmp_path, copy))
    cli_session.more = {"DECLARED": "yes"}
    await cli_session.invoke()
    found = dict(entry.split("=", 1) for entry in seen.read_text().strip("\0").split("\0"))
    assert found["DECLARED"] == "yes"
    assert found["HOME"] == str(cli_session.private / "home")
    assert found["TMPDIR"] == str(cli_session.private / "tmp")
    assert not any("host-secret" in value for value in found.values())
    known = {*cli_session.environment, "HOME", "TMPDIR"}
    assert not {name for name in found if name in os.environ and name not in known}


async def test_its_token_is_not_on_the_command_line(cli_session: CliSession) -> None:
    cli_session.model.script = [Use("write", text="milk"), Hang()]
    async with cli_session.begun():
        (live,) = [one for one in cli_session.processes() if one == cli_session.program()]
        assert not any("bs." in part for part in live.cmdline())
        for file in cli_session.private.rglob("*"):
            if file.is_symlink() or not file.is_file():  # Codex links to its own program
                continue
            if "bs." in file.read_text(errors="replace"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@asynccontextmanager
async def _foreign_server() -> AsyncIterator[tuple[str, list[str]]]:
    """A server that no session may visit."""
    visits: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append((await reader.readline()).decode())
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", visits


def _program(folder: Path, text: str) -> Path:
    """An executable that is no CLI at all."""
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file
