"""Judge the result of a session: correct a false success, and keep the words of a failed one from people."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from butlers.domain.session import Outcome, SessionResult

CUT_OFF = (Outcome.OVER_BUDGET, Outcome.LIMIT_REACHED)  # by a limit of ours
REFUSED = (
    Outcome.RATE_LIMITED,
    Outcome.NO_CREDENTIAL,
    Outcome.NO_CREDIT,
    Outcome.MODEL_UNAVAILABLE,
    Outcome.MCP_UNAVAILABLE,
)
NOTHING_DONE = "the session ended without an answer and without doing anything"


def cut_off_text(why: str, done: Sequence[str]) -> str:
    """Say why a session was ended before it was done, and what it did until then."""
    counts = Counter(done)
    names = ", ".join(
        tool if times == 1 else f"{tool} ({times} times)" for tool, times in counts.items()
    )
    told = f"Done until then: {names}." if names else "Nothing was done until then."
    return f"I had to stop before I was finished: {why}. {told}"


def without_false_success(result: SessionResult) -> SessionResult:
    """Correct a success without an answer that has done nothing, by what our own server saw."""
    if not result.ok or result.text.strip() or result.changed:
        return result
    return replace(result, outcome=Outcome.NO_ANSWER, error=NOTHING_DONE)


def without_interim_words(result: SessionResult) -> SessionResult:
    """Drop the words of a failed session: only the log keeps them, they are no answer."""
    has_answer = result.ok or result.outcome in (Outcome.CANCELLED, *CUT_OFF)
    return result if has_answer else replace(result, text="")


def refused_at_once(result: SessionResult) -> bool:
    """Return whether it was refused before it could use tokens. One with a text or a call has used some."""
    began = result.text or result.tool_calls or result.usage.input_tokens is not None
    return result.outcome in REFUSED and not began


def unreached(result: SessionResult) -> SessionResult:
    """Correct a success of a CLI that never connected to its butler."""
    if not result.ok:
        return result
    return replace(
        result, outcome=Outcome.MCP_UNAVAILABLE, error="the session never reached its butler"
    )


def crash_result(error: BaseException) -> SessionResult:
    outcome = Outcome.CANCELLED if isinstance(error, asyncio.CancelledError) else Outcome.CRASHED
    message = str(error)
    name = type(error).__name__
    return SessionResult(outcome, "", error=f"{name}: {message}" if message else name)
