"""Failed sessions: what the person is told, and what becomes of the message."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.domain.errors import (
    Postponed,
    RateLimited,
    SessionFailed,
    SessionInterrupted,
    SessionUnavailable,
    WaitsForOwner,
)
from butlers.domain.message import RequestContext, RouteDecision, RouteRequest
from butlers.domain.redaction import MASK, redactor
from butlers.domain.session import (
    FAILURE_CLASSES,
    FailureClass,
    Outcome,
    SessionResult,
    ToolCall,
)
from butlers.runtimes.reflex import NO_MODEL
from butlers.sessions.recovery import MOST_SESSIONS, WAITING, error_of
from butlers.sessions.routes import accept_route
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.waiting import until

INTERIM = "Let me look that up for you."
ANSWERS = frozenset(  # outcomes that have an answer of their own
    {
        Outcome.OK,
        Outcome.TOOL_FAILED,
        Outcome.OVER_BUDGET,
        Outcome.LIMIT_REACHED,
        Outcome.CANCELLED,
    }
)


async def interim(butler: McpClient) -> str:
    await butler.list_tools()
    return INTERIM


@dataclass(frozen=True)
class Sent:
    """Everything that a butler said."""

    replies: list[str]
    notices: list[str]


async def sent(tester: InProcessButler) -> Sent:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    payloads = [json.loads(row["payload"]) for row in rows]
    replies = [one["message"] for one in payloads if one["intent"] == "reply"]
    return Sent(replies, [one["message"] for one in payloads if one["intent"] != "reply"])


async def route(tester: InProcessButler, request: RequestContext | None = None) -> RequestContext:
    request = request or request_context()
    decision = RouteDecision("tester", "fallback", "test")
    async with tester.butler.database.transaction() as connection:
        await accept_route(connection, RouteRequest(request, "tester", "think", decision))
    return request


async def item(tester: InProcessButler, *states: str, failed: bool = True) -> dict[str, Any]:
    """Wait until the route is in one of these states, and has failed at least once."""

    async def find() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT state, error, run_after, attempts FROM queue_items"
            " WHERE queue = 'routes' AND state = ANY($1) AND (NOT $2 OR error IS NOT NULL)",
            list(states),
            failed,
        )

    return (await until(f"the route to be {states}", find))[0]


def long_ago() -> RequestContext:
    return replace(request_context(), received_at=datetime.now(UTC) - timedelta(minutes=5))


def test_every_outcome_has_an_answer_or_one_class() -> None:
    assert set(Outcome) == ANSWERS | FAILURE_CLASSES.keys()
    assert not ANSWERS & FAILURE_CLASSES.keys()


@pytest.mark.parametrize(
    ("outcome", "attempt", "kind"),
    [
        (Outcome.RATE_LIMITED, 9, RateLimited),
        (Outcome.MODEL_UNAVAILABLE, 9, SessionUnavailable),
        (Outcome.CRASHED, 1, SessionInterrupted),
        (Outcome.CRASHED, MOST_SESSIONS, SessionFailed),
        (Outcome.TIMED_OUT, MOST_SESSIONS, SessionFailed),
        (Outcome.NO_CREDENTIAL, 1, WaitsForOwner),
        (Outcome.REJECTED, 1, SessionFailed),
    ],
)
def test_class_decides_the_error(outcome: Outcome, attempt: int, kind: type) -> None:
    error = error_of(SessionResult(outcome, "", error="why"), attempt)
    assert (type(error), str(error)) == (kind, "why")
    assert error.retryable is (kind is not SessionFailed)


def test_final_error_names_what_was_done() -> None:
    calls = (
        ToolCall("write", {}, True),
        ToolCall("write", {}, True),
        ToolCall("Bash", {}, True, of_cli=True),
    )
    error = error_of(SessionResult(Outcome.REJECTED, "", calls, error="why"), 1)
    assert str(error) == "why; done until then: write"


@pytest.mark.parametrize("outcome", sorted(FAILURE_CLASSES.keys() - {Outcome.NO_MATCH}))
async def test_interim_words_of_a_failed_session_reach_nobody(
    tester: InProcessButler, outcome: Outcome
) -> None:
    tester.butler.spawner.model = FakeRuntime(interim, outcome=outcome)
    await route(tester)
    await item(tester, "ready", "dead")
    said = await sent(tester)
    assert INTERIM not in " ".join([*said.replies, *said.notices])
    (row,) = await tester.rows("SELECT output FROM sessions LIMIT 1")
    assert row["output"] == INTERIM, "the log keeps them"


async def test_trigger_returns_no_interim_words_of_a_failed_session(
    tester: InProcessButler,
) -> None:
    tester.butler.spawner.model = FakeRuntime(interim, outcome=Outcome.CRASHED)
    async with tester.owner() as owner:
        answer = await owner.call("trigger", {"prompt": "think"})
    assert INTERIM not in json.dumps(answer)
    (row,) = await tester.rows("SELECT output FROM sessions")
    assert row["output"] == INTERIM, "the log keeps them"


async def test_outage_is_told_once_and_answered_when_it_is_over(tester: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        model.outcome = Outcome.MODEL_UNAVAILABLE if len(model.asked) < 3 else Outcome.OK
        return INTERIM if len(model.asked) < 3 else "Here is your answer."

    tester.butler.spawner.model = model = FakeRuntime(think)
    await route(tester, long_ago())
    await item(tester, "done", failed=False)
    assert (await sent(tester)).replies == [WAITING, "Here is your answer."]


async def test_failure_of_unknown_cause_is_tried_again_a_few_times(
    tester: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.queue.worker.INTERRUPTED_PAUSE", timedelta(milliseconds=10))
    tester.butler.spawner.model = model = FakeRuntime(interim, outcome=Outcome.CRASHED)
    await route(tester)
    dead = await item(tester, "dead")
    assert (len(model.asked), dead["error"]) == (MOST_SESSIONS, "it ended as crashed")

    async def told() -> list[str]:
        return (await sent(tester)).replies

    (reply,) = await until("the notice", told)
    assert reply.startswith("Your message could not be handled: it ended as crashed.")


async def test_wrong_key_keeps_the_messages_and_tells_the_owner_once(
    tester: InProcessButler,
) -> None:
    tester.butler.spawner.model = model = FakeRuntime(interim, outcome=Outcome.NO_CREDENTIAL)
    for number in range(2):
        await route(tester)
        await until("the session to fail", lambda n=number: len(model.asked) > n or None)

    async def kept() -> bool:
        rows = await tester.rows(
            "SELECT run_after > now() + interval '10 minutes' AS later FROM queue_items"
            " WHERE queue = 'routes' AND state = 'ready' AND error IS NOT NULL"
        )
        return [row["later"] for row in rows] == [True, True]

    await until("both to wait", kept)
    said = await sent(tester)
    assert said.replies == [WAITING, WAITING]
    (notice,) = said.notices
    assert "tester cannot answer: its model does not accept the credential" in notice
    assert "/retry" in notice
    model.outcome = Outcome.OK
    await route(tester)

    async def answered() -> bool:
        return (await sent(tester)).replies.count(INTERIM) == 3

    await until("the waiting ones to go on after one that is answered", answered)


async def test_message_kept_without_a_model_is_answered_when_the_owner_says_so(
    make_butler: MakeButler,
) -> None:
    tester = make_butler()
    await tester.start()
    await route(tester)
    kept = await item(tester, "ready")
    assert kept["run_after"] > datetime.now(UTC) + timedelta(days=300)
    assert (await sent(tester)).replies == [NO_MODEL]
    tester.butler.spawner.model = FakeRuntime(interim)
    await tester.butler.recovery.ask_about_kept()
    await tester.butler.recovery.ask_about_kept()
    (question,) = (await sent(tester)).notices
    assert question.startswith("1 message was kept while tester had no language model.")
    async with tester.peer("switchboard") as switchboard:
        await switchboard.call("control_pause", {})
        await switchboard.call("control_resume", {})
        assert (await item(tester, "ready"))["run_after"] == kept["run_after"], "nobody has asked"
        assert await switchboard.call("control_retry", {}) == {"due": 1}
    await item(tester, "done", failed=False)
    assert (await sent(tester)).replies == [NO_MODEL, INTERIM]


async def test_empty_answer_without_any_effect_is_not_done(tester: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("status", {})  # reading is not doing
        return " "

    tester.butler.spawner.model = FakeRuntime(think)
    await route(tester)
    waiting = await item(tester, "ready")
    assert waiting["error"] == "the session ended without an answer and without doing anything"
    assert (await sent(tester)).replies == []


async def test_empty_answer_after_an_effect_is_done(tester: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("write", {"text": "milk"})
        return ""

    tester.butler.spawner.model = FakeRuntime(think)
    await route(tester)
    await item(tester, "done", failed=False)
    assert (await sent(tester)).replies == ["That is done."]


async def test_secrets_are_masked_in_everything_that_leaves(tester: InProcessButler) -> None:
    redactor.register("hunter2-of-the-owner")

    async def think(butler: McpClient) -> str:
        await butler.call("notify", {"message": "first: hunter2-of-the-owner"})
        await butler.call(
            "notify", {"message": "hunter2-of-the-owner", "channel": "webhook", "recipient": "x:y"}
        )
        return "The word is hunter2-of-the-owner."

    tester.butler.spawner.model = FakeRuntime(think)
    hook = {"source_channel": "webhook", "source_endpoint_identity": "phone:owner"}
    await route(tester, replace(request_context(), **hook))
    await item(tester, "done", failed=False)
    said = await sent(tester)
    assert said.notices == [f"first: {MASK}", MASK]
    assert said.replies == [f"The word is {MASK}."]
    async with tester.owner() as owner:
        answer = await owner.call("trigger", {"prompt": "think"})
    assert answer["output"] == f"The word is {MASK}."


async def test_scheduled_run_waits_for_its_model(tester: InProcessButler) -> None:
    recovery = tester.butler.recovery
    with pytest.raises(SessionUnavailable):
        await recovery.handle_run(SessionResult(Outcome.MODEL_UNAVAILABLE, "", error="away"), 1)
    with pytest.raises(Postponed):
        await recovery.handle_run(SessionResult(Outcome.NO_CREDIT, "", error="empty"), 1)
    assert "no credit left" in (await sent(tester)).notices[0]
    for result in (SessionResult(Outcome.OK, ""), SessionResult(Outcome.REJECTED, "")):
        await recovery.handle_run(result, 1)


def test_classes_are_complete() -> None:
    assert set(FAILURE_CLASSES.values()) == set(FailureClass)
