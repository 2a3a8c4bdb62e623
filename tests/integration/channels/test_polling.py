"""A connector that fetches, against a real Switchboard: its checkpoint follows what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from butlers.channels.polling import SKIPPED_RETRY_S, McpInbox, PolledMessage, PollingConnector
from butlers.domain.errors import PeerUnavailable, QueueFull, StateConflict, TooManyStrangers
from butlers.domain.message import Event, InboundEnvelope, Payload, Sender, Source
from support.clocks import LeapClock
from support.in_process import InProcessButler
from support.waiting import until


@dataclass
class Shelf:
    """A source in the outside world: numbered messages that stay where they are."""

    texts: list[str]
    kind: str = "email"
    endpoint: str = "me@example.com"
    senders: dict[int, str] = field(default_factory=dict)  # where it is not Anna
    named: bool = True  # whether it gives its messages ids
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


async def test_everything_comes_in_once_and_the_checkpoint_follows(
    switchboard: InProcessButler,
) -> None:
    shelf = Shelf(["one", "two", "three"])
    async with switchboard.owner() as client:
        connector = PollingConnector(shelf, McpInbox(client))
        running = asyncio.create_task(connector.run())
        await until("the last to be accepted", lambda: _at(switchboard, 3))
        shelf.texts.append("four")
        await until("what came later", lambda: _at(switchboard, 4))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await kept(switchboard) == ["uid-0", "uid-1", "uid-2", "uid-3"]
    assert connector.counters.messages_ingested == connector.counters.checkpoint_saves == 4


async def test_what_is_not_accepted_does_not_move_the_checkpoint(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [False, True, True]

    async def is_full(*_: object) -> bool:
        return full.pop(0) if full else False

    await _let_in(switchboard)
    monkeypatch.setattr("butlers.queue.leased_queue.is_full", is_full)
    async with switchboard.owner() as client:
        connector = PollingConnector(Shelf(["one", "two"]), McpInbox(client))
        await connector.beat()
        with pytest.raises(QueueFull):
            await connector.step(None)
        assert await checkpoint(switchboard) == {"uid": 1}
        with pytest.raises(QueueFull):
            await connector.step({"uid": 1})
        assert await checkpoint(switchboard) == {"uid": 1}
        assert await connector.step({"uid": 1}) == {"uid": 2}
    assert await kept(switchboard) == ["uid-0", "uid-1"]


async def test_killed_between_acceptance_and_checkpoint_nothing_is_doubled(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(["one", "two"])
    async with switchboard.owner() as client:
        first = PollingConnector(shelf, McpInbox(client))
        await first.beat()

        async def die(_cursor: dict[str, Any]) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(first, "_advance", die)
        with contextlib.suppress(asyncio.CancelledError):
            await first.step(None)
        assert await checkpoint(switchboard) is None
        second = PollingConnector(shelf, McpInbox(client))
        await second.beat()
        assert await second.step(await second.checkpoint()) == {"uid": 2}
    assert await kept(switchboard) == ["uid-0", "uid-1"]
    assert (second.counters.dedupe_accepted, second.counters.messages_ingested) == (1, 1)


async def test_a_message_that_is_refused_is_noted_and_blocks_nobody(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(Shelf(["one", "bad\0", "three"]), McpInbox(client))
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


async def test_one_whose_every_message_is_refused_is_seen_though_each_is_noted(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(Shelf(["bad\0", "worse\0"]), McpInbox(client))
        await connector.beat()
        assert await connector.step(None) == {"uid": 2}
        (one,) = (await client.call("connectors_list"))["connectors"]
    assert one["health"] == "rejected"
    assert one["last_minute"]["noted"] == one["last_minute"]["refused"] == 2


async def test_where_there_is_no_room_for_strangers_the_checkpoint_waits_and_the_owner_does_not(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 2)
    await _let_in(switchboard, "me@example.com", role="owner")
    shelf = Shelf(["one", "two", "three", "/status", "five"], senders={3: "me@example.com"})
    clock = LeapClock()
    async with switchboard.owner() as client:
        connector = PollingConnector(shelf, McpInbox(client), clock)
        await connector.beat()
        cursor = await connector.step(None)
        assert cursor == {"uid": 5}
        assert await checkpoint(switchboard) == {"uid": 2}
        assert "messages of unknown senders are held" in (connector.error or "")
        assert await kept(switchboard) == ["uid-0", "uid-1", "uid-3"]

        clock.leap(seconds=SKIPPED_RETRY_S)  # there is no room yet
        assert await connector.step(cursor) == {"uid": 2}
        assert await connector.step({"uid": 2}) == {"uid": 5}
        assert await checkpoint(switchboard) == {"uid": 2}

        await _let_in(switchboard)
        shelf.texts.append("six")
        assert await connector.step({"uid": 5}) == {"uid": 6}  # Anna's stay behind her own
        assert await kept(switchboard) == ["uid-0", "uid-1", "uid-3"]
        clock.leap(seconds=SKIPPED_RETRY_S)
        assert await connector.step({"uid": 6}) == {"uid": 2}
        assert await connector.step({"uid": 2}) == {"uid": 6}
        assert await checkpoint(switchboard) == {"uid": 6}
        assert connector.error is None
    order = [0, 1, 3, 2, 4, 5]
    assert await kept(switchboard) == [f"uid-{number}" for number in order]


async def test_what_was_left_is_found_again_after_a_restart(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    await _let_in(switchboard, "ben@example.com")
    shelf = Shelf(["one", "two", "three"], senders={2: "ben@example.com"})
    async with switchboard.owner() as client:
        first = PollingConnector(shelf, McpInbox(client))
        await first.beat()
        assert await first.step(None) == {"uid": 3}
        await _let_in(switchboard)
        second = PollingConnector(shelf, McpInbox(client))
        await second.beat()
        assert await second.step(await second.checkpoint()) == {"uid": 3}
        assert await checkpoint(switchboard) == {"uid": 3}
    assert await kept(switchboard) == ["uid-0", "uid-2", "uid-1"]
    assert second.counters.dedupe_accepted == 1


async def test_a_source_that_fails_on_the_way_back_moves_no_checkpoint_past_what_was_left(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    monkeypatch.setattr("butlers.channels.polling.SKIPPED_RETRY_S", 0.1)
    shelf = Shelf(["one", "two"])
    poll, failed = shelf.poll, []

    async def fail_once(cursor: dict[str, Any] | None) -> Sequence[PolledMessage]:
        if shelf.asked and cursor == {"uid": 1} and not failed:
            failed.append(cursor)
            raise PeerUnavailable("the source is away")
        return await poll(cursor)

    monkeypatch.setattr(shelf, "poll", fail_once)
    async with switchboard.owner() as client:
        running = asyncio.create_task(PollingConnector(shelf, McpInbox(client)).run())
        await until("it to have gone back", lambda: failed or None)
        await _let_in(switchboard)
        await until("what was left", lambda: _at(switchboard, 2))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await kept(switchboard) == ["uid-0", "uid-1"]


async def test_a_source_without_ids_is_not_left_behind_because_nobody_would_know_the_rest_again(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    async with switchboard.owner() as client:
        connector = PollingConnector(Shelf(["one", "two"], named=False), McpInbox(client))
        await connector.beat()
        with pytest.raises(TooManyStrangers):
            await connector.step(None)
        assert await checkpoint(switchboard) == {"uid": 1}


async def test_of_two_instances_the_older_gives_way(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as client:
        old, new = (PollingConnector(Shelf(["one"]), McpInbox(client)) for _ in range(2))
        await old.beat()
        await new.beat()
        with pytest.raises(StateConflict):
            await old.step(None)
        assert await checkpoint(switchboard) is None
        assert await new.step(None) == {"uid": 1}


async def test_while_the_switchboard_is_away_it_waits_and_says_why(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.owner() as client:
        connector = PollingConnector(Shelf(["one"]), McpInbox(client))
        switchboard.butler.in_flight.refuse_outsiders()
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
