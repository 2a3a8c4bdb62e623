"""The ingest tool: a rejected message leaves no trace, an answered one is committed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotAllowed, QueueFull
from support.full_queue import full_inbox
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until

MEGABYTE = 1_000_000


def without(part: str, field: str) -> dict[str, Any]:
    made = envelope()
    del made[part][field]
    return made


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "over 1 MB": (envelope("x" * (MEGABYTE + 1)), "message_too_large"),
    "over 1 MB in bytes only": (envelope("é" * (MEGABYTE // 2 + 1)), "message_too_large"),
    "over 1 MB of raw": (
        envelope(payload={"raw": {"a": ["x" * 1000] * 1001}}),
        "message_too_large",
    ),
    "empty": (envelope(""), "invalid_message"),
    "whitespace only": (envelope(" \t\n\u00a0"), "invalid_message"),
    "NUL byte": (envelope("a\x00b"), "invalid_message"),
    "lone surrogate": (envelope("a\ud800b"), "invalid_message"),
    "NUL byte in raw": (envelope(payload={"raw": {"deep": [{"x": "\x00"}]}}), "invalid_message"),
    "NUL byte in a key of raw": (envelope(payload={"raw": {"\x00": 1}}), "invalid_message"),
    "surrogate in raw": (envelope(payload={"raw": {"x": "\udfff"}}), "invalid_message"),
    "NUL byte in the sender": (envelope(sender={"identity": "\x00"}), "invalid_message"),
    "NUL byte in the trace": (envelope(control={"trace_id": "\x00"}), "invalid_message"),
    "unknown channel": (envelope(source={"channel": "pigeon"}), "unknown_channel"),
    "unknown channel with NUL": (envelope(source={"channel": "\x00"}), "unknown_channel"),
    "no event id": (without("event", "external_event_id"), "invalid_arguments"),
    "an event id that no index holds": (
        envelope(event={"external_event_id": "x" * 1001}),
        "invalid_message",
    ),
    "metadata with its raw text": (
        envelope(payload={"raw": {"a": 1}}, control={"ingestion_tier": "metadata"}),
        "invalid_message",
    ),
    "naive timestamp": (
        envelope(event={"observed_at": "2026-05-03T09:00:00"}),
        "invalid_message",
    ),
    "no timestamp": (without("event", "observed_at"), "invalid_arguments"),
    "not a timestamp": (envelope(event={"observed_at": "yesterday"}), "invalid_arguments"),
    "no text": (without("payload", "normalized_text"), "invalid_arguments"),
    "wrong schema_version": (envelope(schema_version="ingest.v2"), "invalid_arguments"),
    "unknown tier": (envelope(control={"policy_tier": "vip"}), "invalid_arguments"),
    "extra key": (envelope(extra=1), "invalid_arguments"),
    "extra key in the source": (envelope(source={"extra": 1}), "invalid_arguments"),
    "extra key in the payload": (envelope(payload={"extra": 1}), "invalid_arguments"),
}


async def inbox(tester: InProcessButler) -> tuple[int, int]:
    return await tester.count("message_inbox"), await tester.count("queue_items")


async def test_rejected_message_is_explained_and_leaves_no_trace(
    switchboard: InProcessButler,
) -> None:
    codes: dict[str, str] = {}
    for why, (message, _code) in REFUSED.items():
        answer = await switchboard.call_raw("ingest", message, switchboard.owner_token)
        assert answer["result"]["isError"], why
        error = answer["result"]["structuredContent"]["error"]
        assert error["message"], why
        assert error["hint"], why
        assert not error["retryable"], why
        codes[why] = error["code"]
        assert await inbox(switchboard) == (0, 0), why
    assert codes == {why: code for why, (_message, code) in REFUSED.items()}
    # Each attempt is audited.
    assert await switchboard.rows("SELECT ok, count(*) AS n FROM tool_calls GROUP BY ok") == [
        {"ok": False, "n": len(REFUSED)}
    ]


async def test_message_of_exactly_one_megabyte_is_accepted(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("x" * MEGABYTE))
    assert await switchboard.rows("SELECT length(text) AS n FROM message_inbox") == [
        {"n": MEGABYTE}
    ]


async def test_ingest_commits_before_it_answers(
    switchboard: InProcessButler,
) -> None:
    message = envelope(
        "grüezi 🌍\u202e",
        event={"external_thread_id": "t-1"},
        payload={"raw": {"a": [1, None, "é"]}},
        control={"policy_tier": "interactive"},
    )
    async with switchboard.owner() as owner:
        answer = await owner.call("ingest", message)
        (row,) = await switchboard.rows("SELECT * FROM message_inbox")

    assert answer == {
        "request_id": str(row["request_id"]),
        "status": "accepted",
        "duplicate": False,
        "triage_target": None,
    }
    assert UUID(answer["request_id"]).version == 7
    assert (row["text"], row["channel"], row["endpoint"]) == (
        "grüezi 🌍\u202e",
        "console",
        "console:owner",
    )
    assert (row["sender"], row["thread"], row["policy_tier"]) == ("owner", "t-1", "interactive")
    assert row["observed_at"] == datetime.fromisoformat(message["event"]["observed_at"])
    assert row["received_at"] <= datetime.now(UTC)
    (item,) = await switchboard.rows("SELECT queue, key, priority FROM queue_items")
    assert item == {"queue": "inbox", "key": answer["request_id"], "priority": 1}


async def test_repeated_event_is_a_duplicate(switchboard: InProcessButler) -> None:
    message = envelope()
    async with switchboard.owner() as owner:
        first = await owner.call("ingest", message)
        again = await owner.call("ingest", message)
        other_words = await owner.call(
            "ingest", {**message, "payload": {"normalized_text": "other"}}
        )
    assert first["duplicate"] is False
    assert again == other_words == {**first, "duplicate": True}
    assert await inbox(switchboard) == (1, 1)


async def test_idempotency_key_replaces_the_event_id(switchboard: InProcessButler) -> None:
    control = {"idempotency_key": "mail-1"}
    async with switchboard.owner() as owner:
        first = await owner.call("ingest", envelope(control=control))
        again = await owner.call("ingest", envelope(control=control))
        unnamed = await owner.call(
            "ingest", envelope(event={"external_event_id": ""}, control=control)
        )
    assert {answer["request_id"] for answer in (first, again, unnamed)} == {first["request_id"]}
    assert await inbox(switchboard) == (1, 1)


async def test_colons_in_ids_do_not_merge_messages(switchboard: InProcessButler) -> None:
    """Endpoint "a:b" with event "c" is not endpoint "a" with event "b:c"."""
    async with switchboard.owner() as owner:
        for endpoint, event in (("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c")):
            answer = await owner.call(
                "ingest",
                envelope(
                    source={"endpoint_identity": endpoint}, event={"external_event_id": event}
                ),
            )
            assert answer["duplicate"] is False
    assert await inbox(switchboard) == (3, 3)


async def test_twenty_concurrent_repeats_are_stored_once(switchboard: InProcessButler) -> None:
    message = envelope()

    async def ingest() -> dict[str, Any]:
        async with switchboard.owner() as owner:
            answer: dict[str, Any] = await owner.call("ingest", message)
            return answer

    answers = await asyncio.gather(*(ingest() for _ in range(20)))
    assert len({answer["request_id"] for answer in answers}) == 1
    assert sorted(answer["duplicate"] for answer in answers) == [False] + [True] * 19
    assert await inbox(switchboard) == (1, 1)


async def test_message_without_an_available_butler_is_retried(
    switchboard: InProcessButler,
) -> None:
    """Without a registered butler the decision is stored and the item waits."""
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("plan the garden"))

    async def tried() -> list[dict[str, Any]]:
        return await switchboard.rows("SELECT * FROM queue_items WHERE error IS NOT NULL")

    (item,) = await until("an attempt", tried)
    assert "general has not registered" in item["error"]
    assert item["state"] in ("ready", "leased")
    (row,) = await switchboard.rows("SELECT target, rule, routed_at FROM route_decisions")
    assert row == {"target": "general", "rule": "fallback", "routed_at": None}


# -- in another's name -----------------------------------------------------------------------------


def delivery(origin: str) -> dict[str, Any]:
    return {
        "delivery_id": str(uuid7()),
        "origin": origin,
        "intent": "send",
        "channel": "console",
        "target": "console:owner",
        "message": "hello",
        "schema_version": "notify.v1",
    }


def registration(name: str) -> dict[str, Any]:
    return {"name": name, "url": "http://127.0.0.1:9/mcp", "description": "test"}


async def test_delivery_in_another_butlers_name_is_rejected(switchboard: InProcessButler) -> None:
    async with switchboard.peer("general") as peer:
        with pytest.raises(NotAllowed, match="general cannot deliver in the name of health"):
            await peer.call("deliver", {"delivery": delivery("health")})
        assert await switchboard.count("queue_items") == 0
        await peer.call("deliver", {"delivery": delivery("general")})
    assert await switchboard.count("queue_items") == 1


async def test_repeated_delivery_is_a_duplicate(switchboard: InProcessButler) -> None:
    once = delivery("general")
    async with switchboard.peer("general") as peer:
        assert await peer.call("deliver", {"delivery": once}) == {
            "status": "accepted",
            "duplicate": False,
        }
        assert (await peer.call("deliver", {"delivery": once}))["duplicate"] is True
    assert await switchboard.count("queue_items") == 1


async def test_registration_in_another_butlers_name_is_rejected(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.peer("general") as peer:
        with pytest.raises(NotAllowed, match="general cannot register messenger"):
            await peer.call("register", {"registration": registration("messenger")})
        assert await switchboard.count("butler_registry") == 0
        await peer.call("register", {"registration": registration("general")})
        await peer.call("register", {"registration": registration("general")})
    assert await switchboard.count("butler_registry") == 1


async def test_only_the_switchboard_may_route_to_a_butler(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.peer("health") as peer:
        with pytest.raises(NotAllowed, match="only the Switchboard"):
            await peer.call(
                "route.execute",
                {
                    "route": {
                        "request": {
                            "request_id": str(uuid7()),
                            "received_at": datetime.now(UTC).isoformat(),
                            "source_channel": "console",
                            "source_endpoint_identity": "console:owner",
                            "source_sender_identity": "owner",
                        },
                        "target": "switchboard",
                        "text": "hello",
                        "decision": {"target": "switchboard", "rule": "x", "reason": "x"},
                    }
                },
            )
    assert await switchboard.count("queue_items") == 0


async def test_only_the_switchboard_may_deliver_to_the_messenger(
    make_butler: MakeButler,
) -> None:
    messenger = make_butler("messenger")
    await messenger.start()
    async with messenger.peer("general") as peer:
        with pytest.raises(NotAllowed, match="only the Switchboard"):
            await peer.call("deliver", {"delivery": delivery("general")})
    assert await messenger.count("deliveries") == 0
    async with messenger.peer("switchboard") as peer:
        await peer.call("deliver", {"delivery": delivery("general")})
    assert await messenger.count("deliveries") == 1


# -- when there is too much --------------------------------------------------------------------------


async def test_full_queue_rejects_messages_without_storing_them(
    switchboard: InProcessButler,
) -> None:
    """A duplicate is still answered; a new message is rejected as retryable."""
    first = envelope("first")
    async with switchboard.owner() as owner:
        known = await owner.call("ingest", first)
    before = await inbox(switchboard)

    async with full_inbox(switchboard), switchboard.owner() as owner:
        with pytest.raises(QueueFull) as refused:
            await owner.call("ingest", envelope("second", event={"external_event_id": "new"}))
        assert refused.value.retryable
        assert refused.value.hint
        again = await owner.call("ingest", first)
    assert (again["request_id"], again["duplicate"]) == (known["request_id"], True)
    assert await inbox(switchboard) == before


# -- who is there ------------------------------------------------------------------------------------


async def test_silent_butler_becomes_stale_and_then_quarantined(
    switchboard: InProcessButler,
) -> None:
    async with switchboard.peer("health") as health:
        await health.call("register", {"registration": registration("health")})
    async with switchboard.owner() as owner:
        states = []
        for late in (0, 1, 2):
            await switchboard.rows(
                "UPDATE butler_registry SET last_seen_at = now()"
                " - ($1 * liveness_ttl_s + 5 * least($1, 1)) * interval '1 second'",
                late,
            )
            (found,) = (await owner.call("registry_list"))["butlers"]
            states.append(found["state"])
        assert states == ["active", "stale", "quarantined"]
        async with switchboard.peer("health") as health:
            await health.call("register", {"registration": registration("health")})
        (found,) = (await owner.call("registry_list"))["butlers"]
        assert found["state"] == "active"


async def test_sender_of_a_waiting_message_is_notified_once(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.dispatch.NOTICE_AFTER", timedelta(0))
    async with switchboard.owner() as owner:
        sent = await owner.call("ingest", envelope("is anybody there?"))

    async def notices() -> list[dict[str, Any]]:
        return await switchboard.rows(
            "SELECT payload->>'message' AS message FROM queue_items WHERE queue = 'notify'"
            " AND payload->>'request_id' = $1",
            sent["request_id"],
        )

    await until("the sender to be notified", notices)
    tries = "SELECT fence FROM queue_items WHERE queue = 'inbox'"

    async def tried_often() -> bool:
        (row,) = await switchboard.rows(tries)
        return bool(row["fence"] >= 3)

    await until("some more attempts", tried_often)
    (words,) = await notices()
    assert "is not running" in words["message"]


@pytest.mark.parametrize("at_once", [100, 1])
async def test_senders_behind_a_waiting_message_are_notified_once_per_day(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("butlers.switchboard.dispatch.NOTICES_AT_ONCE", at_once)
    monkeypatch.setattr("butlers.switchboard.dispatch.NOTICE_AFTER", timedelta(0))
    async with switchboard.owner() as owner:
        sent = [
            (await owner.call("ingest", envelope(f"are you there? {number}")))["request_id"]
            for number in range(4)
        ]

    async def notices() -> list[str]:
        rows = await switchboard.rows(
            "SELECT payload->>'request_id' AS id FROM queue_items WHERE queue = 'notify' ORDER BY id"
        )
        return [row["id"] for row in rows]

    async def all_notified() -> bool:
        return len(await notices()) >= len(sent)

    await until("all senders to be notified", all_notified)

    async def state_of_all() -> dict[str, dict[str, Any]]:
        rows = await switchboard.rows("SELECT * FROM queue_items WHERE queue = 'inbox'")
        return {row["key"]: row for row in rows}

    async def first_tried_often() -> bool:
        return bool((await state_of_all())[sent[0]]["fence"] >= 4)

    await until("some more attempts of the first", first_tried_often)
    assert sorted(await notices()) == sorted(sent)
    assert all(one["waits_since"] for one in (await state_of_all()).values())

    await switchboard.rows("UPDATE queue_items SET waits_since = now() - interval '25 hours'")

    async def all_dead() -> bool:
        await switchboard.rows("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
        return {one["state"] for one in (await state_of_all()).values()} == {"dead"}

    await until("all of them to have waited for too long", all_dead)
