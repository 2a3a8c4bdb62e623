"""The polling connector against a real Switchboard: its checkpoint follows the accepted messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from butlers.channels.polling import SKIPPED_RETRY_S, McpInbox, PolledMessage, PollingConnector
from butlers.domain.errors import PeerUnavailable, QueueFull, StateConflict, TooManyUnknownSenders
from butlers.domain.message import Event, InboundEnvelope, Payload, Sender, Source
from support.clocks import LeapClock
from support.full_queue import empty_inbox, fill_inbox
from support.in_process import InProcessButler
from support.waiting import until


@dataclass
class NumberedSource:
    """A source with numbered messages, which can be fetched again."""

    texts: list[str]
    kind: str = "email"
    endpoint: str = "me@example.com"
    senders: dict[int, str] = field(default_factory=dict)  # by number; Anna if not given
    named: bool = True  # whether messages have ids
    asked: list[Any] = field(default_factory=list)

    async def poll(self, cursor: dict[str, Any] | None) -> Sequence[PolledMessage]:
        self.asked.append(cursor)
        first = cursor["uid"] if cursor else 0
        if first >= len(self.texts):
            await asyncio.sleep(0.02)
        return [
            PolledMessage(self._envelope(number, text), {"uid": number + 1})
            for number, text in enumerate(self.texts[first:], first)
        ]

    def _envelope(self, number: int, text: str) -> InboundEnvelope:
        return InboundEnvelope(
            Source(self.kind, "imap", self.endpoint),
            Event(f"uid-{number}" if self.named else "", datetime.now(UTC)),
            Sender(self.senders.get(number, "anna@example.com")),
            Payload(text),
        )


async def checkpoint(tester: InProcessButler) -> Any:
    async with tester.owner() as owner:
        where = {"kind": "email", "endpoint": "me@example.com"}
        return (await owner.call("connector_checkpoint", where))["cursor"]


async def kept(tester: InProcessButler) -> list[str]:
    rows = await tester.rows("SELECT event_id FROM message_inbox ORDER BY received_at, request_id")
    return [row["event_id"] for row in rows]


async def test_each_message_is_ingested_once_and_the_checkpoint_follows(
    switchboard: InProcessButler,
) -> None:
    source = NumberedSource(["one", "two", "three"])
    async with switchboard.owner() as client:
        connector = PollingConnector(source, McpInbox(client))
        running = asyncio.create_task(connector.run())
        await until("the last to be accepted", lambda: _at(switchboard, 3))
        source.texts.append("four")
        await until("what came later", lambda: _at(switchboard, 4))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await kept(switchboard) == ["uid-0", "uid-1", "uid-2", "uid-3"]
    assert connector.counters.messages_ingested == connector.counters.checkpoint_saves == 4


async def test_unaccepted_message_does_not_move_the_checkpoint(
    switchboard: InProcessButler,
) -> None:
    class FullAfterOne(McpInbox):
        async def accept(
            self, envelope: InboundEnvelope, *, counted_as: str | None = None
        ) -> dict[str, Any]:
            answer = await super().accept(envelope, counted_as=counted_as)
            if envelope.payload.normalized_text == "one":
                await fill_inbox(switchboard)
            return answer

    await _let_in(switchboard)
    async with switchboard.owner() as client:
        connector = PollingConnector(NumberedSource(["one", "two"]), FullAfterOne(client))
        await connector.beat()
        with pytest.raises(QueueFull):
            await connector.step(None)
        assert await checkpoint(switchboard) == {"uid": 1}
        with pytest.raises(QueueFull):
            await connector.step({"uid": 1})
        assert await checkpoint(switchboard) == {"uid": 1}
        await empty_inbox(switchboard)
        assert await connector.step({"uid": 1}) == {"uid": 2}
    assert await kept(switchboard) == ["uid-0", "uid-1"]


async def test_kill_between_acceptance_and_checkpoint_doubles_nothing(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NumberedSource(["one", "two"])
    async with switchboard.owner() as client:
        first = PollingConnector(source, McpInbox(client))
        await first.beat()

        async def die(_cursor: dict[str, Any]) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(first, "_advance", die)
        with contextlib.suppress(asyncio.CancelledError):
            await first.step(None)
        assert await checkpoint(switchboard) is None
        second = PollingConnector(source, McpInbox(client))
        await second.beat()
        assert await second.step(await second.checkpoint()) == {"uid": 2}
    assert await kept(switchboard) == ["uid-0", "uid-1"]
    assert (second.counters.dedupe_accepted, second.counters.messages_ingested) == (1, 1)


async def test_refused_message_is_stored_as_metadata_and_blocks_no_other(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(NumberedSource(["one", "bad\0", "three"]), McpInbox(client))
        await connector.beat()
        assert await connector.step(None) == {"uid": 3}
    rows = await switchboard.rows(
        "SELECT event_id, state, text FROM message_inbox ORDER BY request_id"
    )
    assert [(row["event_id"], row["state"]) for row in rows] == [
        ("uid-0", "held"),
        ("uid-1", "noted"),
        ("uid-2", "held"),
    ]
    assert connector.counters.messages_failed == 1


async def test_connector_with_only_refused_messages_is_listed_as_rejected(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(NumberedSource(["bad\0", "worse\0"]), McpInbox(client))
        await connector.beat()
        assert await connector.step(None) == {"uid": 2}
        (one,) = (await client.call("connectors_list"))["connectors"]
    assert one["health"] == "rejected"
    assert one["last_minute"]["noted"] == one["last_minute"]["refused"] == 2


async def test_skipped_message_of_a_stranger_holds_the_checkpoint_but_not_the_owner(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 2)
    await _let_in(switchboard, "me@example.com", role="owner")
    source = NumberedSource(
        ["one", "two", "three", "/status", "five"], senders={3: "me@example.com"}
    )
    clock = LeapClock()
    async with switchboard.owner() as client:
        connector = PollingConnector(source, McpInbox(client), clock)
        await connector.beat()
        cursor = await connector.step(None)
        assert cursor == {"uid": 5}
        assert await checkpoint(switchboard) == {"uid": 2}
        assert "messages of unknown senders are held" in (connector.error or "")
        assert await kept(switchboard) == ["uid-0", "uid-1", "uid-3"]

        clock.leap(seconds=SKIPPED_RETRY_S)  # the Switchboard still has no room
        assert await connector.step(cursor) == {"uid": 2}
        assert await connector.step({"uid": 2}) == {"uid": 5}
        assert await checkpoint(switchboard) == {"uid": 2}

        await _let_in(switchboard)
        source.texts.append("six")
        assert await connector.step({"uid": 5}) == {"uid": 6}  # Anna's messages keep their order
        assert await kept(switchboard) == ["uid-0", "uid-1", "uid-3"]
        clock.leap(seconds=SKIPPED_RETRY_S)
        assert await connector.step({"uid": 6}) == {"uid": 2}
        assert await connector.step({"uid": 2}) == {"uid": 6}
        assert await checkpoint(switchboard) == {"uid": 6}
        assert connector.error is None
    order = [0, 1, 3, 2, 4, 5]
    assert await kept(switchboard) == [f"uid-{number}" for number in order]


async def test_skipped_message_is_fetched_again_after_a_restart(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    await _let_in(switchboard, "ben@example.com")
    source = NumberedSource(["one", "two", "three"], senders={2: "ben@example.com"})
    async with switchboard.owner() as client:
        first = PollingConnector(source, McpInbox(client))
        await first.beat()
        assert await first.step(None) == {"uid": 3}
        await _let_in(switchboard)
        second = PollingConnector(source, McpInbox(client))
        await second.beat()
        assert await second.step(await second.checkpoint()) == {"uid": 3}
        assert await checkpoint(switchboard) == {"uid": 3}
    assert await kept(switchboard) == ["uid-0", "uid-2", "uid-1"]
    assert second.counters.dedupe_accepted == 1


async def test_failing_source_does_not_move_the_checkpoint_past_a_skipped_message(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    monkeypatch.setattr("butlers.channels.polling.SKIPPED_RETRY_S", 0.1)
    source = NumberedSource(["one", "two"])
    poll, failed = source.poll, []

    async def fail_once(cursor: dict[str, Any] | None) -> Sequence[PolledMessage]:
        if source.asked and cursor == {"uid": 1} and not failed:
            failed.append(cursor)
            raise PeerUnavailable("the source is away")
        return await poll(cursor)

    monkeypatch.setattr(source, "poll", fail_once)
    async with switchboard.owner() as client:
        running = asyncio.create_task(PollingConnector(source, McpInbox(client)).run())
        await until("it to have gone back", lambda: failed or None)
        await _let_in(switchboard)
        await until("what was left", lambda: _at(switchboard, 2))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await kept(switchboard) == ["uid-0", "uid-1"]


async def test_message_without_an_id_is_never_skipped(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    async with switchboard.owner() as client:
        connector = PollingConnector(NumberedSource(["one", "two"], named=False), McpInbox(client))
        await connector.beat()
        with pytest.raises(TooManyUnknownSenders):
            await connector.step(None)
        assert await checkpoint(switchboard) == {"uid": 1}


async def test_older_of_two_instances_is_rejected(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as client:
        old, new = (PollingConnector(NumberedSource(["one"]), McpInbox(client)) for _ in range(2))
        await old.beat()
        await new.beat()
        with pytest.raises(StateConflict):
            await old.step(None)
        assert await checkpoint(switchboard) is None
        assert await new.step(None) == {"uid": 1}


async def test_connector_waits_for_the_switchboard_and_reports_why(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(NumberedSource(["one"]), McpInbox(client))
        switchboard.butler.in_flight.reject_external_calls()
        running = asyncio.create_task(connector.run())
        await until("it to have tried", lambda: connector.error)
        assert "shutting down" in (connector.error or "")
        switchboard.butler.in_flight._refused = frozenset()
        await until("it to be accepted", lambda: _at(switchboard, 1))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _at(tester: InProcessButler, uid: int) -> bool | None:
    return (await checkpoint(tester)) == {"uid": uid} or None


async def _let_in(tester: InProcessButler, who: str = "anna@example.com", **more: str) -> None:
    async with tester.owner() as owner:
        await owner.call("contacts_allow", {"channel": "email", "identity": who, **more})
