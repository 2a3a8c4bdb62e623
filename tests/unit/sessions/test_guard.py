"""The guard: a token that is lent reads for the session that lent it."""

from __future__ import annotations

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import TooManyCalls
from butlers.domain.session import SessionRequest
from butlers.sessions.guard import HEED, SessionGuard


def test_reads_of_a_lent_token_count_for_its_session() -> None:
    guard = SessionGuard("tester")
    with (
        guard.admit(SessionRequest(uuid7(), "think", "test")) as own,
        guard.admit(SessionRequest(uuid7(), "think", "test")) as another,
    ):
        session, other = guard.find(own), guard.find(another)
        assert session is not None
        assert other is not None
        with guard.lend(session.caller, None, frozenset({"mail_inbox"}), 60) as lent:
            script = guard.find(lent)
            assert script is not None
            script.outside.add("mail_inbox")
        assert (session.outside, other.outside) == ({"mail_inbox"}, set())


def test_calls_above_the_limit_are_refused_and_then_end_the_session() -> None:
    guard = SessionGuard("tester", max_calls=2)
    session, stopped = SessionRequest(uuid7(), "think", "test"), []
    with guard.watch(session.session_id) as seen, guard.admit(session) as token:
        seen.stop = lambda: stopped.append(True)
        live = guard.find(token)
        assert live is not None
        for _ in range(2):
            live.count_call()
        for _ in range(HEED):
            with pytest.raises(TooManyCalls, match="its 2 tool calls"):
                live.count_call()
        assert stopped == [], "the session is told first"
        with pytest.raises(TooManyCalls):
            live.count_call()
        assert (stopped, seen.limit) == ([True], "the session has used its 2 tool calls")


def test_token_is_worthless_after_its_time() -> None:
    guard = SessionGuard("tester")
    with guard.admit(SessionRequest(uuid7(), "think", "test"), lifetime_s=-1) as token:
        assert guard.find(token) is None


def test_session_calls_only_the_tools_that_it_was_given() -> None:
    guard = SessionGuard("tester", hidden=frozenset({"mail"}))
    narrow = SessionRequest(uuid7(), "think", "test", tools=frozenset({"assign"}))
    with guard.admit(narrow) as one, guard.admit(SessionRequest(uuid7(), "x", "test")) as other:
        limited, free = guard.find(one), guard.find(other)
        assert limited is not None
        assert free is not None
        assert [limited.may_call(name) for name in ("assign", "notify")] == [True, False]
        assert [free.may_call(name) for name in ("notify", "mail")] == [True, False]
