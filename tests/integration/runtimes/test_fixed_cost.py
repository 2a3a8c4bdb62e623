"""The fixed cost of a session: our count against what the model receives."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from support.cli_butler import CliButler, OpenCliButler
from support.clis import CLAUDE, CLIS, CODEX, GEMINI, Cli
from support.fake_model import Say
from support.in_process import InProcessButler

ROSTER = Path(__file__).resolve().parents[3] / "roster"
MORE_TOOLS = '''
"""Tools of an ordinary size, to make up the number."""

from typing import Annotated, Any

from pydantic import Field

from butlers.sdk import SESSIONS, CallContext, Module, tool


def _make(number):
    async def act(
        ctx: CallContext,
        name: Annotated[str, Field(max_length=200)],
        amount: Annotated[float, Field(ge=0)] = 0,
        tags: list[str] | None = None,
        note: str | None = None,
    ) -> dict[str, Any]:
        """Keep one entry of this kind, with an amount, tags and a note; the newest counts."""
        return {}

    act.__name__ = f"keep_entry_of_kind_{number}"
    return tool(callers=SESSIONS)(act)


class CliSession(Module):
    name = "bench"
    tools = tuple(_make(number) for number in range(COUNT))
'''


def furnished(
    open_cli_butler: OpenCliButler, cli: Cli, tools: int, access: str = "workspace"
) -> AbstractAsyncContextManager[CliButler]:
    """A shipped butler's prompt, and as many tools of its own as are asked for."""
    return open_cli_butler(cli, f'access = "{access}"\n', partial(_furnish, tools=tools))


def _furnish(tester: InProcessButler, tools: int) -> None:
    modules = tester.directory / "modules" / "__init__.py"
    modules.write_text(MORE_TOOLS.replace("COUNT", str(tools)))
    text = (ROSTER / "shared" / "AGENTS.md").read_text() + own_prompt()
    (tester.directory / "CLAUDE.md").write_text(text)


def own_prompt() -> str:
    """The part of the prompt that is the butler's own; `butlers roster check` limits its words."""
    return (ROSTER / "health" / "AGENTS.md").read_text().partition("\n")[2]


async def cost(butler: CliButler) -> tuple[int, int, int]:
    """The tools, the tokens that we counted, and a quarter of the bytes that the model got."""
    butler.model.script = [Say("Done.")]
    await butler.run(butler.message("hi"))
    turn = butler.model.turns[-1]
    (row,) = await butler.rows("SELECT fixed_tokens FROM sessions")
    received = len(json.dumps(turn.body, ensure_ascii=False).encode()) // 4
    return len(turn.offered), row["fixed_tokens"], received


@pytest.mark.parametrize(
    ("tools", "limit"), [(0, 2_500), (28, 8_000)], ids=["no tools of its own", "forty tools"]
)
async def test_fixed_cost_of_claude_stays_below_its_limit(
    open_cli_butler: OpenCliButler, tools: int, limit: int
) -> None:
    async with furnished(open_cli_butler, CLAUDE, tools) as butler:
        offered, counted, received = await cost(butler)
    if tools:
        assert offered >= 40
    assert received - len(own_prompt().encode()) // 4 < limit
    assert 0.75 * received < counted < 1.25 * received, "what we show is what it is"


@pytest.mark.parametrize("cli", [CODEX, GEMINI], ids=lambda cli: cli.name)
async def test_sessions_of_other_butlers_count(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with furnished(open_cli_butler, cli, 0) as butler:
        _offered, counted, received = await cost(butler)
    assert 0.75 * received < counted < 1.25 * received


@pytest.mark.parametrize(
    ("cli", "access"),
    [(CLAUDE, "workspace"), (GEMINI, "workspace"), *((cli, "full") for cli in CLIS)],
    ids=lambda value: getattr(value, "name", value),
)
async def test_wider_access_counts_the_clis_own_tools(
    open_cli_butler: OpenCliButler, cli: Cli, access: str
) -> None:
    async with furnished(open_cli_butler, cli, 0, access) as butler:
        butler.model.script = [Say("Done.")]
        await butler.trigger("hi")
        turn = butler.model.turns[-1]
        (row,) = await butler.rows("SELECT fixed_tokens, access FROM sessions")
    assert row["access"] == access
    received = len(json.dumps(turn.body, ensure_ascii=False).encode()) // 4
    assert 0.75 * received < row["fixed_tokens"] < 1.25 * received
