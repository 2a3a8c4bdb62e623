"""The prompt of a session: a message from outside can not leave the place it is put in."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.ids import uuid7
from butlers.domain.request import RequestContext
from butlers.domain.session import SessionRequest
from butlers.sessions.prompt import compose_prompt
from butlers.store.sessions import DoneCall

REQUEST = RequestContext(
    uuid7(), datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "telegram", "bot", "alice", "thread-7"
)


def test_a_persons_own_prompt_is_itself() -> None:
    assert compose_prompt(SessionRequest(uuid7(), "tidy up", "trigger")) == "tidy up"


def test_a_message_comes_with_its_context() -> None:
    prompt = compose_prompt(SessionRequest(uuid7(), "hello", "route", REQUEST))
    title, context, *_ = prompt.split("\n")
    assert title == "REQUEST CONTEXT"
    assert json.loads(context) == {
        "request_id": str(REQUEST.request_id),
        "source_channel": "telegram",
        "source_sender_identity": "alice",
        "source_thread_identity": "thread-7",
        "received_at": "2026-01-02T03:04:00+00:00",
    }


@given(st.text())
def test_a_message_can_not_end_its_own_fence(text: str) -> None:
    prompt = compose_prompt(SessionRequest(uuid7(), text, "route", REQUEST))
    found = re.search(r"<(MESSAGE-[0-9a-f]{12})>\n(.*)\n</\1>", prompt, re.DOTALL)
    assert found is not None
    assert found[2] == text


def test_two_messages_have_different_marks() -> None:
    session = SessionRequest(uuid7(), "hello", "route", REQUEST)
    assert compose_prompt(session) != compose_prompt(session)


def test_what_an_earlier_session_did_is_listed() -> None:
    done = [DoneCall("measurement_log", {"type": "weight", "value": 80}), DoneCall("notify", {})]
    prompt = compose_prompt(SessionRequest(uuid7(), "weight 80", "route", REQUEST), done)
    assert '\n- measurement_log {"type": "weight", "value": 80}\n- notify {}' in prompt
    assert "cut off" in prompt
