"""The guard: a token that is lent reads for the session that lent it."""

from __future__ import annotations

from butlers.domain.clock import uuid7
from butlers.domain.session import SessionRequest
from butlers.sessions.guard import SessionGuard


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
