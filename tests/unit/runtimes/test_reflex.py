"""The reflex runtime with a tool that is called directly. The rest is in tests/integration/runtimes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from butlers.domain.errors import NotFound, PeerUnavailable
from butlers.domain.session import Outcome
from butlers.runtimes.base import McpServer
from butlers.runtimes.reflex import NO_MODEL, ReflexRuntime
from butlers.skills.reflexes import ReflexMatch, load_reflexes


@pytest.fixture
def runtime(tmp_path: Path) -> ReflexRuntime:
    file = tmp_path / "notes" / "reflex.toml"
    file.parent.mkdir()
    file.write_text(
        'version = 1\n[[reflex]]\nname = "a"\npattern = "go"\ntool = "t"\nreply = "ok"\n'
    )
    book = load_reflexes(tmp_path)
    return ReflexRuntime(
        lambda text, _request: book.match(text, datetime.now(UTC), ZoneInfo("UTC"))
    )


async def test_unmatched_prompt_makes_no_call() -> None:
    asked: list[str] = []

    def match(text: str, _request: object) -> ReflexMatch | None:
        asked.append(text)
        return None

    async def call(tool: str, arguments: dict[str, Any]) -> Any:
        raise AssertionError(f"{tool} was called")

    result = await ReflexRuntime(match).answer("hello there", None, call)
    assert asked == ["hello there"]
    assert (result.outcome, result.text, result.tool_calls) == (Outcome.NO_MATCH, NO_MODEL, ())
    assert not result.ok


async def test_retryable_error_of_the_tool_is_raised(runtime: ReflexRuntime) -> None:
    """Nothing happened, so nothing is said to the person: the whole request is tried again."""

    async def call(tool: str, arguments: dict[str, Any]) -> Any:
        raise PeerUnavailable("not now")

    with pytest.raises(PeerUnavailable):
        await runtime.answer("go", None, call)


async def test_permanent_error_of_the_tool_is_the_answer(runtime: ReflexRuntime) -> None:
    async def call(tool: str, arguments: dict[str, Any]) -> Any:
        raise NotFound("there is none", hint="make one")

    result = await runtime.answer("go", None, call)
    assert result.outcome is Outcome.TOOL_FAILED
    assert result.text == "That did not work: there is none\nmake one"
    assert [(made.tool, made.ok) for made in result.tool_calls] == [("t", False)]


def test_token_is_not_in_a_repr() -> None:
    assert "secret" not in repr(McpServer("http://127.0.0.1:1/mcp", "secret"))
