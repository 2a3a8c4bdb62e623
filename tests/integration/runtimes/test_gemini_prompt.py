"""Gemini CLI takes a system prompt for a template; a butler's words are none, or the session has failed."""

from __future__ import annotations

import pytest

from butlers.domain.session import Outcome
from butlers.runtimes.gemini.transcript import PROMPT_NOT_SENT
from support.cli_session import SYSTEM_PROMPT, CliSession
from support.clis import GEMINI, Cli
from support.fake_model import Call, Say, Use


@pytest.fixture
def cli() -> Cli:
    return GEMINI


async def test_missing_system_prompt_event_is_a_failure(cli_session: CliSession) -> None:
    """Simulates a CLI version that calls its model in another way."""
    other = cli_session.private / "home" / "other.cjs"
    other.parent.mkdir(exist_ok=True)
    other.write_text("Object.defineProperty(globalThis, 'fetch', {value: fetch, writable: false});")
    cli_session.more = {"NODE_OPTIONS": f"--require={other}"}
    result = await cli_session.invoke()
    assert (result.outcome, result.error) == (Outcome.CRASHED, PROMPT_NOT_SENT)
    (turn,) = cli_session.model.turns
    assert SYSTEM_PROMPT not in turn.text


async def test_text_cannot_imitate_the_system_prompt_mark(
    cli_session: CliSession,
) -> None:
    cli_session.model.script = [Use(Call("quick", {"text": "SYSTEM-PROMPT-"})), Say("Done.")]
    result = await cli_session.invoke("SYSTEM-PROMPT-0123456789abcdef0123456789abcdef")
    assert result.outcome is Outcome.OK
    for turn in cli_session.model.turns:
        assert turn.text.count(SYSTEM_PROMPT) == 1
        assert "SYSTEM-PROMPT-0123456789abcdef0123456789abcdef" in turn.user
