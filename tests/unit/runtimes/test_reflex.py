"""The reflex runtime before it connects. The rest is in tests/integration/runtimes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from butlers.domain.errors import PeerUnavailable
from butlers.domain.session import Outcome, SessionResult
from butlers.runtimes.base import McpServer, Terms, Workspace
from butlers.runtimes.reflex import NO_MODEL, ReflexRuntime
from butlers.skills.reflexes import ReflexMatch, load_reflexes

TERMS = Terms(Workspace(Path(), Path()))
NOBODY = {"tester": McpServer("http://127.0.0.1:1/mcp", "token")}


async def invoke(runtime: ReflexRuntime, prompt: str) -> SessionResult:
    return await runtime.invoke(prompt, "", NOBODY, {}, TERMS)


async def test_unmatched_prompt_makes_no_connection() -> None:
    asked: list[str] = []

    def match(text: str, _request: object) -> ReflexMatch | None:
        asked.append(text)
        return None

    result = await invoke(ReflexRuntime(match), "hello there")
    assert asked == ["hello there"]
    assert (result.outcome, result.text, result.tool_calls) == (Outcome.NO_MATCH, NO_MODEL, ())
    assert not result.ok


async def test_unreachable_butler_raises_a_retryable_error(tmp_path: Path) -> None:
    """Nothing happened, so nothing is said to the person: the whole request is tried again."""
    file = tmp_path / "notes" / "reflex.toml"
    file.parent.mkdir()
    file.write_text(
        'version = 1\n[[reflex]]\nname = "a"\npattern = "go"\ntool = "t"\nreply = "ok"\n'
    )
    book = load_reflexes(tmp_path)
    runtime = ReflexRuntime(
        lambda text, _request: book.match(text, datetime.now(UTC), ZoneInfo("UTC"))
    )

    with pytest.raises(PeerUnavailable) as failed:
        await invoke(runtime, "go")
    assert failed.value.retryable


def test_token_is_not_in_a_repr() -> None:
    assert "secret" not in repr(McpServer("http://127.0.0.1:1/mcp", "secret"))
