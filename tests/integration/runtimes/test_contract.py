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
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from butlers.domain.errors import InternalError
from butlers.domain.session import Access, Outcome
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import Grants
from support.cli_session import SYSTEM_PROMPT, Bench
from support.fake_model import Call, Fail, Hang, Say, Use
from support.waiting import until

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


async def rows(bench: Bench) -> list[str]:
    return [
        row["text"] for row in await bench.tester.rows("SELECT text FROM entries ORDER BY number")
    ]


async def calls(bench: Bench) -> list[dict[str, Any]]:
    """What came to the butler, by its own record."""
    return await bench.tester.rows(
        "SELECT tool, ok, error, result_bytes FROM tool_calls ORDER BY id"
    )


# -- what works --------------------------------------------------------------------------------


async def test_a_tool_call_and_an_answer(bench: Bench) -> None:
    bench.model.script = [Use("write", text="milk"), Say("It is written.")]
    result = await bench.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert result.text == "It is written."
    (call,) = result.tool_calls
    assert (call.tool, call.arguments, call.ok) == ("write", {"text": "milk"}, True)
    assert "milk" in str(call.result)
    assert await rows(bench) == ["milk"]
    assert "milk" in bench.model.turns[-1].results[0]
    assert result.denials == ()


async def test_what_it_used_and_which_model(bench: Bench) -> None:
    bench.model.script = [Use("quick", text="a"), Say("Done.")]
    result = await bench.invoke()
    assert result.usage.output_tokens == 2 * 25
    assert result.usage.cached_tokens == 2 * 200
    assert result.usage.input_tokens in (
        2 * 1000,
        2 * 1200,
    )  # vendors count the cached ones in or out
    assert result.model == bench.cli.model
    assert {turn.model for turn in bench.model.turns} == {bench.cli.model}


async def test_two_turns_and_two_calls_at_once(bench: Bench) -> None:
    both = Use(Call("write", {"text": "eggs"}), Call("quick", {"text": "hello"}))
    bench.model.script = [Use("write", text="milk"), both, Say("All is done.")]
    result = await bench.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    first, *together = [call.tool for call in result.tool_calls]
    assert (first, sorted(together)) == ("write", ["quick", "write"])
    assert all(call.ok for call in result.tool_calls)
    assert await rows(bench) == ["milk", "eggs"]


async def test_the_prompts_arrive_as_they_are(bench: Bench) -> None:
    prompt = f"Grüße 🎩 «\\n» {'x' * 300_000} end"
    result = await bench.invoke(prompt)
    assert result.outcome is Outcome.OK
    (turn,) = bench.model.turns
    assert prompt in turn.user
    assert SYSTEM_PROMPT in turn.system


async def test_the_system_prompt_arrives_to_the_byte(bench: Bench) -> None:
    """Also what a CLI would take for a template of its own, or for layout that it may tidy up."""
    bench.system_prompt = NASTY
    result = await bench.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    (turn,) = bench.model.turns
    assert turn.strings.count(NASTY) == 1
    assert turn.text.count("PERIWINKLE") == 1, "and nothing of it twice"


async def test_a_prompt_is_never_a_command(bench: Bench) -> None:
    """What a person writes goes to the model as a text, whatever its first letter means to the CLI."""
    prompts = ("/help", "/clear", "/cost now", "@butler.toml", "!touch planted", "-h")
    for prompt in prompts:
        result = await bench.invoke(prompt)
        assert (result.outcome, result.text) == (Outcome.OK, "Done.")
    assert len(bench.model.turns) == len(prompts)
    for prompt, turn in zip(prompts, bench.model.turns, strict=True):
        assert prompt in turn.user
        assert "[modules.bench]" not in turn.text
    assert not (bench.cwd / "planted").exists()


async def test_a_file_that_a_prompt_names_is_not_read(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("PERIWINKLE")
    (bench.cwd / "inside.txt").write_text("PERIWINKLE")
    names = f"@{tmp_path}/secret.txt @inside.txt @./inside.txt @../secret.txt"
    result = await bench.invoke(f"Look at {names} please.")
    assert result.outcome is Outcome.OK
    assert bench.model.turns
    assert not any("PERIWINKLE" in turn.text for turn in bench.model.turns)


async def test_a_result_of_200_kilobytes(bench: Bench) -> None:
    bench.model.script = [Use("say", text="0123456789", times=20_000), Say("That was long.")]
    result = await bench.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "That was long.")
    (call,) = result.tool_calls
    assert call.ok
    assert "0123456789" in str(call.result)
    (made,) = await calls(bench)
    assert (made["tool"], made["ok"]) == ("say", True)
    assert made["result_bytes"] >= 200_000, "it was served whole"
    assert len(bench.model.turns) == 2, "and asked for once"
    (told,) = bench.model.turns[-1].results
    assert "0123456789" * 10 in told, "its beginning, or all of it, reaches the model"
    assert bench.processes() == []


async def test_a_tool_that_raises(bench: Bench) -> None:
    bench.model.script = [Use("write_and_fail", text="x"), Say("It did not work.")]
    result = await bench.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "It did not work.")
    (call,) = result.tool_calls
    assert (call.tool, call.ok) == ("write_and_fail", False)
    assert "no such shelf" in bench.model.turns[-1].results[0]
    assert await rows(bench) == []
    (made,) = await calls(bench)
    assert (made["tool"], made["ok"]) == ("write_and_fail", False)
    assert "no such shelf" in made["error"]


async def test_the_owners_own_arguments_are_added(bench: Bench) -> None:
    bench.args = ("--no-such-argument",)
    result = await bench.invoke()
    assert result.outcome is Outcome.CRASHED
    assert result.error
    assert bench.model.turns == []


# -- what is not reached -------------------------------------------------------------------------


async def test_a_server_that_is_down(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        bench.url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        bench.model.script = [Use("write", text="milk"), Say("Done.")]
        result = await bench.invoke()
    assert result.outcome is Outcome.MCP_UNAVAILABLE
    assert result.error
    assert await rows(bench) == []
    assert await calls(bench) == []
    assert not any(turn.find("write") for turn in bench.model.turns)
    assert bench.processes() == []


async def test_a_token_that_opens_nothing(bench: Bench) -> None:
    """Of another installation, say: the butler is there, and says no to all of it."""
    bench.token = "bs.nobody"
    bench.model.script = [Use("write", text="milk"), Say("Done.")]
    result = await bench.invoke()
    if (
        result.outcome is not Outcome.MCP_UNAVAILABLE
    ):  # one CLI does not tell; the butler's log does
        assert result.tool_calls == ()
        assert not any(turn.find("write") for turn in bench.model.turns)
    assert await rows(bench) == []
    assert not any(call["ok"] for call in await calls(bench))


# -- the model fails -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail", "outcome"),
    [
        (error(400, "invalid_request_error"), Outcome.CRASHED),
        (error(401, "authentication_error"), Outcome.NO_CREDENTIAL),
        (error(429, "rate_limit_error"), Outcome.RATE_LIMITED),
        (error(503, "service_unavailable"), Outcome.RATE_LIMITED),
        (error(529, "overloaded_error"), Outcome.RATE_LIMITED),
        (NO_MONEY, Outcome.OVER_BUDGET),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_a_model_that_fails(bench: Bench, fail: Fail, outcome: Outcome) -> None:
    bench.model.script = [fail]
    result = await bench.invoke()
    assert result.outcome is outcome
    assert result.error
    assert result.text == ""  # an error is not what the session said
    assert bench.model.turns
    assert not any(turn.results for turn in bench.model.turns)
    assert await calls(bench) == []
    assert bench.processes() == []


async def test_a_model_that_fails_once_is_asked_again(bench: Bench) -> None:
    once = replace(error(529, "overloaded_error"), times=1)
    bench.model.script = [Use("write", text="milk"), once, Say("After all.")]
    result = await bench.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "After all.")
    assert await rows(bench) == ["milk"]
    assert len(await calls(bench)) == 1, "what was done is not done again"


async def test_no_credential_at_all(bench: Bench) -> None:
    given = dict(bench.environment)
    del given[bench.cli.no_key]
    bench.cli = replace(bench.cli, environment=lambda _: given)
    result = await bench.invoke()
    assert result.outcome is Outcome.NO_CREDENTIAL
    assert result.error
    assert bench.model.turns == []


# -- it hangs, is ended, is cancelled --------------------------------------------------------------


async def test_it_hangs_at_the_start(bench: Bench, tmp_path: Path) -> None:
    """A CLI that says nothing at all, which has been seen to last for hours."""
    bench.adapter = bench.cli.adapter(_program(tmp_path, "import time; time.sleep(3600)"))
    bench.limits = TimeLimits(startup_s=0.5, silence_s=60, total_s=60)
    result = await bench.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert result.error
    assert bench.model.turns == []
    assert await calls(bench) == []
    assert bench.processes() == []
    assert bench.tester.butler.guard.count == 0


async def test_a_server_that_takes_the_call_and_never_answers(bench: Bench) -> None:
    """The CLI itself hangs, on its way to the butler."""
    never = asyncio.Event()

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        bench.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        bench.limits = TimeLimits(startup_s=3, silence_s=3, total_s=6)
        bench.model.script = [Use("write", text="milk"), Say("Done.")]
        result = await bench.invoke()
        never.set()
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.MCP_UNAVAILABLE)
    assert result.error
    assert await rows(bench) == []
    assert await calls(bench) == []
    assert not any(turn.find("write") for turn in bench.model.turns)
    assert bench.processes() == []


async def test_a_model_that_never_says_the_first_word(bench: Bench) -> None:
    bench.model.script = [Hang()]
    bench.limits = TimeLimits(startup_s=60, silence_s=3, total_s=60)
    result = await bench.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert result.text == ""
    assert result.tool_calls == ()
    assert bench.processes() == []


async def test_it_hangs_in_the_middle(bench: Bench) -> None:
    """What it did before stands, once; what it would have done after is nowhere."""
    bench.model.script = [
        Use("write", text="milk"),
        Hang(),
        Use("write", text="eggs"),
        Say("Late."),
    ]
    bench.limits = TimeLimits(startup_s=60, silence_s=5, total_s=120)
    result = await bench.invoke()
    assert result.outcome is Outcome.TIMED_OUT
    assert (result.error, result.text) != (None, "Late.")
    (call,) = result.tool_calls
    assert (call.tool, call.ok) == ("write", True)
    assert bench.processes() == []
    assert bench.tester.butler.guard.count == 0
    bench.model.release()
    assert await rows(bench) == ["milk"]
    assert [(made["tool"], made["ok"]) for made in await calls(bench)] == [("write", True)]
    assert [len(turn.results) for turn in bench.model.turns] == [0, 1], "asked no more after it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_the_cli_is_ended_from_outside(bench: Bench, number: signal.Signals) -> None:
    bench.model.script = [Use("write", text="milk"), Hang()]
    async with bench.begun() as session:
        for process in bench.processes() if number is signal.SIGKILL else [bench.program()]:
            process.send_signal(number)
        result = await session
    assert result.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)
    assert result.error
    assert [call.tool for call in result.tool_calls] == ["write"]
    assert await rows(bench) == ["milk"]
    assert len(await calls(bench)) == 1
    assert bench.processes() == []


async def test_a_cancelled_session_leaves_nothing(bench: Bench) -> None:
    bench.model.script = [Use("write", text="milk"), Hang()]
    async with bench.begun() as session:
        known = bench.processes()
        assert known
        session.cancel()
        with pytest.raises(asyncio.CancelledError):
            await session
        assert not any(one.is_running() for one in known)
    assert bench.processes() == []
    assert bench.tester.butler.guard.count == 0
    bench.model.release()
    assert await rows(bench) == ["milk"]
    assert len(await calls(bench)) == 1


# -- what it may touch -------------------------------------------------------------------------------


@pytest.mark.parametrize("access", list(Access))
async def test_a_level_that_it_can_not_hold_is_refused(bench: Bench, access: Access) -> None:
    bench.grants = Grants(access)
    if bench.adapter.holds(access):
        assert (await bench.invoke()).outcome is Outcome.OK
    else:
        with pytest.raises(InternalError):
            await bench.invoke()
        assert bench.model.turns == []


async def test_a_sealed_session_has_its_butlers_tools_alone(bench: Bench, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    attempt = replace(bench.cli.run(f"touch {planted}"), anyway=True)
    bench.model.script = [Use(attempt), Say("I could not.")]
    result = await bench.invoke()
    async with bench.tester.session() as session:
        served = {tool["name"] for tool in await session.list_tools()}
    assert "quick" in served
    offered = sorted([*(f"{bench.cli.prefix}{name}" for name in served), *bench.cli.beside])
    assert all(sorted(turn.offered) == offered for turn in bench.model.turns)
    assert not planted.exists()
    assert result.outcome is Outcome.DENIED
    assert result.denials
    assert not any(call.ok for call in result.tool_calls)
    assert await calls(bench) == [], "nothing of it came to the butler"
    (answer,) = bench.model.turns[-1].results
    assert answer, "the model was told that it may not"


async def test_a_tool_that_this_session_was_not_given(bench: Bench) -> None:
    """The butler's own wall: what a session was not given it is neither offered nor served."""
    bench.tools = frozenset({"quick"})
    bench.model.script = [Use("quick"), Say("Done.")]
    await bench.invoke()
    offered = bench.model.turns[0].find("quick")
    assert offered
    assert bench.model.turns[0].find("write") is None
    bench.model.script = [
        Use(Call(offered.removesuffix("quick") + "write", {"text": "x"}, anyway=True))
    ]
    result = await bench.invoke()
    assert not any(call.ok for call in result.tool_calls)
    assert await rows(bench) == []
    assert [call["tool"] for call in await calls(bench) if call["ok"]] == ["quick"]
    last = bench.model.turns[-1]
    assert last.find("write") is None
    (answer,) = last.results
    assert "number" not in answer, "and nothing of a row"


async def test_a_full_session_has_hands(bench: Bench, tmp_path: Path) -> None:
    bench.grants = Grants(Access.FULL)
    made = tmp_path / "made"
    make = bench.cli.run(f"touch {made}")
    bench.model.script = [Use(make), Use("write", text="milk"), Say("Done.")]
    result = await bench.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert made.exists()
    assert await rows(bench) == ["milk"]


async def test_what_a_full_session_started_ends_with_it(bench: Bench, tmp_path: Path) -> None:
    """Also in a session of its own, with no parent, and after the CLI has left."""
    bench.grants = Grants(Access.FULL)
    noted = tmp_path / "pid"
    detach = f"(setsid sh -c 'echo $$ > {noted}; exec sleep 3600' >/dev/null 2>&1 &)"
    detach += f"; until [ -s {noted} ]; do sleep 0.01; done"
    bench.model.script = [Use(bench.cli.run(detach)), Say("Done.")]
    result = await bench.invoke()
    assert result.outcome is Outcome.OK
    number = int(
        await until("the process to be noted", lambda: noted.exists() and noted.read_text())
    )
    assert not psutil.pid_exists(number)


# -- what reaches it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("access", [Access.SEALED, Access.FULL])
async def test_foreign_servers_and_hooks_are_not_loaded(
    bench: Bench, tmp_path: Path, access: Access
) -> None:
    """Planted where the CLI looks for them: beside the butler's files, and in its home."""
    bench.grants = Grants(access)
    mark = tmp_path / "mark"
    async with _foreign_server() as (url, visits):
        for folder in (bench.cwd, bench.private / "home"):
            for name, content in bench.cli.plant.items():
                file = folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content.replace("@URL", url).replace("@MARK", str(mark)))
        result = await bench.invoke()
        assert result.outcome is Outcome.OK
        assert visits == []
    assert not mark.exists()
    assert not any("foreign" in name for turn in bench.model.turns for name in turn.offered)


@pytest.mark.parametrize("access", list(Access))
async def test_instruction_files_are_not_read_by_the_cli(
    bench: Bench, tmp_path: Path, access: Access
) -> None:
    """The butler's CLAUDE.md is the system prompt already; nothing of these may come a second time. Planted
    where CLIs look: from where they stand up to the root of a checkout, and beside a file that is read."""
    if not bench.starts(access):
        return  # it is sealed, or starts cold: asked elsewhere
    notes = bench.cwd / "notes"
    plain = notes / "plain.txt"
    outer, bench.private = bench.private, bench.private / "session"
    for root in (tmp_path, outer):
        (root / ".git").mkdir()
    for folder in (notes, bench.cwd, tmp_path, outer, bench.private / "home"):
        for name in INSTRUCTIONS:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("The word is PERIWINKLE.\n")
    plain.write_text("It is plain.\n")
    bench.grants = Grants(access, (bench.cwd,), (bench.cwd / "AGENTS.md",))
    if access is not Access.SEALED:
        bench.model.script = [Use(bench.cli.read(plain)), Say("I have read it.")]
    result = await bench.invoke()
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert bench.model.turns
    if access is not Access.SEALED:
        assert "It is plain." in bench.model.turns[-1].text
    assert not any("PERIWINKLE" in turn.text for turn in bench.model.turns)


async def test_nothing_of_the_host_is_in_its_environment(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {f"PLANTED_{number}": f"host-secret-{number}" for number in range(50)}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    seen = tmp_path / "environment"
    copy = f"import shutil; shutil.copy('/proc/self/environ', {str(seen)!r})"
    bench.adapter = bench.cli.adapter(_program(tmp_path, copy))
    bench.more = {"DECLARED": "yes"}
    await bench.invoke()
    found = dict(entry.split("=", 1) for entry in seen.read_text().strip("\0").split("\0"))
    assert found["DECLARED"] == "yes"
    assert found["HOME"] == str(bench.private / "home")
    assert found["TMPDIR"] == str(bench.private / "tmp")
    assert not any("host-secret" in value for value in found.values())
    known = {*bench.environment, "HOME", "TMPDIR"}
    assert not {name for name in found if name in os.environ and name not in known}


async def test_its_token_is_not_on_the_command_line(bench: Bench) -> None:
    bench.model.script = [Use("write", text="milk"), Hang()]
    async with bench.begun():
        (live,) = [one for one in bench.processes() if one == bench.program()]
        assert not any("bs." in part for part in live.cmdline())
        for file in bench.private.rglob("*"):
            if file.is_symlink() or not file.is_file():  # Codex links to its own program
                continue
            if "bs." in file.read_text(errors="replace"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@asynccontextmanager
async def _foreign_server() -> AsyncIterator[tuple[str, list[str]]]:
    """A server that nobody should visit."""
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
    file.write_text(f"#!{sys.executable} -IS\n{text}\n")
    file.chmod(0o755)
    return file
