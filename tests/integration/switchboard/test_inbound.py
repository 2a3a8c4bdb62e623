"""Senders, rules, threads, replies, attachments and connectors, all without a model."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import (
    ButlersError,
    InvalidArguments,
    InvalidMessage,
    NotFound,
    QueueFull,
    TooManyUnknownSenders,
)
from butlers.domain.message import joined
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.full_queue import full_inbox
from support.in_process import InProcessButler
from support.messages import envelope
from support.waiting import until

BUTLERS: dict[str, dict[str, Any]] = {
    "health": {"reflexes": ["(?i)weight .*"]},
    "travel": {"triggers": ["flight"]},
    "general": {},
    "messenger": {"infrastructure": True},
}
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


@pytest.fixture
async def switchboard(switchboard: InProcessButler) -> InProcessButler:
    for name, more in BUTLERS.items():
        known = {"name": name, "url": "http://127.0.0.1:9/mcp", "description": name, **more}
        async with switchboard.peer(name) as peer:
            await peer.call("register", {"registration": known})
    return switchboard


def mail(text: str = "hello", sender: str = "anna@example.com", **changes: Any) -> dict[str, Any]:
    source = {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.com"}
    return envelope(text, source=source, sender={"identity": sender}, **changes)


async def ingest(tester: InProcessButler, message: dict[str, Any]) -> dict[str, Any]:
    async with tester.owner() as owner:
        answer: dict[str, Any] = await owner.call("ingest", message)
        return answer


async def call(tester: InProcessButler, tool: str, **arguments: Any) -> Any:
    async with tester.owner() as owner:
        return await owner.call(tool, arguments)


async def decisions(tester: InProcessButler, request_id: str) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT decision.* FROM route_decisions AS decision"
            " JOIN message_inbox AS message USING (request_id)"
            " WHERE request_id = $1 AND message.decided_at IS NOT NULL ORDER BY position",
            UUID(request_id),
        )

    return await until("a decision", look)


async def decided(tester: InProcessButler, message: dict[str, Any]) -> tuple[str, str]:
    (found,) = await decisions(tester, (await ingest(tester, message))["request_id"])
    return found["target"], found["rule"]


async def message_row(tester: InProcessButler, request_id: str) -> dict[str, Any]:
    (row,) = await tester.rows(
        "SELECT * FROM message_inbox WHERE request_id = $1", UUID(request_id)
    )
    return row


async def questions(tester: InProcessButler) -> list[str]:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    return [json.loads(row["payload"])["message"] for row in rows]


# -- who is let in -----------------------------------------------------------------------------------


async def test_messages_of_an_unknown_sender_are_held_and_the_owner_asked_once(
    switchboard: InProcessButler,
) -> None:
    first = await ingest(switchboard, mail("one"))
    await ingest(switchboard, mail("two"))
    other = await ingest(switchboard, mail("three", sender="ben@example.com"))
    assert first["status"] == other["status"] == "held"
    assert await switchboard.rows("SELECT 1 FROM queue_items WHERE queue = 'inbox'") == []
    asked = await questions(switchboard)
    assert len(asked) == 2
    assert "'anna@example.com'" in asked[0]
    assert "`butlers contacts allow " in asked[0]
    waiting = (await call(switchboard, "contacts_waiting"))["waiting"]
    assert [(who["sender"], who["messages"], who["latest"]) for who in waiting] == [
        ("anna@example.com", 2, "two"),
        ("ben@example.com", 1, "three"),
    ]


async def test_held_messages_are_released_in_order(switchboard: InProcessButler) -> None:
    held = [await ingest(switchboard, mail(text)) for text in ("weight 1", "weight 2", "weight 3")]
    answer = await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    assert answer["released"] == 3
    rows = await switchboard.rows(
        "SELECT key, lane FROM queue_items WHERE queue = 'inbox' ORDER BY id"
    )
    assert [row["key"] for row in rows] == [one["request_id"] for one in held]
    lane = rows[-1]["lane"]  # the first may already be routed
    assert {row["lane"] for row in rows} <= {lane, joined(lane, "health")}
    again = await ingest(switchboard, mail("weight 4"))
    assert again["status"] == "accepted"
    assert (await message_row(switchboard, again["request_id"]))["sender_roles"] == ["contact"]
    assert (await call(switchboard, "contacts_waiting"))["waiting"] == []


async def test_address_spelling_does_not_make_another_sender(
    switchboard: InProcessButler,
) -> None:
    assert (await ingest(switchboard, mail("weight 1", sender="Anna@Example.com ")))[
        "status"
    ] == "held"
    answer = await call(switchboard, "contacts_allow", channel="email", identity="ANNA@example.com")
    assert answer["released"] == 1
    assert (await ingest(switchboard, mail("weight 2", sender="anna@EXAMPLE.com")))[
        "status"
    ] == "accepted"


async def test_rules_apply_to_released_messages(switchboard: InProcessButler) -> None:
    skipped = await ingest(switchboard, mail("buy now"))
    noted = await ingest(switchboard, mail("a secret"))
    kept = await ingest(switchboard, mail("weight 80"))
    await call(switchboard, "rules_add", kind="pattern", value="buy", action="skip")
    await call(switchboard, "rules_add", kind="pattern", value="secret", action="metadata_only")
    await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    rows = [await message_row(switchboard, one["request_id"]) for one in (skipped, noted, kept)]
    assert [(row["state"], row["text"]) for row in rows] == [
        ("skipped", "buy now"),
        ("noted", ""),
        ("accepted", "weight 80"),
    ]
    queued = await switchboard.rows("SELECT key FROM queue_items WHERE queue = 'inbox'")
    assert [row["key"] for row in queued] == [kept["request_id"]]


async def test_held_command_runs_when_the_address_becomes_the_owners(
    switchboard: InProcessButler,
) -> None:
    held = await ingest(switchboard, mail("/status"))
    assert held["status"] == "held"
    await call(
        switchboard, "contacts_allow", channel="email", identity="anna@example.com", role="owner"
    )
    (row,) = await switchboard.rows(
        "SELECT queue FROM queue_items WHERE key = $1", held["request_id"]
    )
    assert row["queue"] == "commands"


async def test_invalid_ingest_arguments_are_counted_as_refused(
    switchboard: InProcessButler,
) -> None:
    beat = {
        "kind": "imap",  # differs from the channel's name
        "endpoint_identity": "me@example.com",
        "instance_id": str(uuid7()),
        "sent_at": datetime.now(UTC).isoformat(),
    }
    await call(switchboard, "connector_heartbeat", heartbeat=beat)
    for wrong in (mail() | {"payload": {"words": "?"}}, mail() | {"schema_version": "ingest.v9"}):
        with pytest.raises(InvalidArguments):
            await ingest(switchboard, wrong)
    (found,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert found["health"] == "rejected"
    assert found["last_minute"]["refused"] == 2
    assert "payload" in found["why"] or "schema_version" in found["why"]


async def test_messages_of_a_blocked_sender_are_stored_and_skipped(
    switchboard: InProcessButler,
) -> None:
    held = await ingest(switchboard, mail("buy!"))
    await call(switchboard, "contacts_block", channel="email", identity="anna@example.com")
    later = await ingest(switchboard, mail("buy more!"))
    assert later["status"] == "skipped"
    for one in (held, later):
        row = await message_row(switchboard, one["request_id"])
        assert (row["state"], row["text"][:3]) == ("skipped", "buy")
    assert await switchboard.rows("SELECT 1 FROM queue_items WHERE queue = 'inbox'") == []
    assert len(await questions(switchboard)) == 1


async def test_no_message_stays_held_after_its_sender_is_allowed(
    switchboard: InProcessButler,
) -> None:
    """The sender is allowed while messages come in: each is released or never held."""
    allow = call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    await asyncio.gather(*(ingest(switchboard, mail(f"{n}")) for n in range(12)), allow)
    assert (await call(switchboard, "contacts_waiting"))["waiting"] == []
    assert len(await switchboard.rows("SELECT 1 FROM queue_items WHERE queue = 'inbox'")) == 12


async def flood(tester: InProcessButler, messages: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the numbers of held and of rejected messages. There is no third outcome."""

    async def one(message: dict[str, Any]) -> bool:
        try:
            return bool((await ingest(tester, message))["status"] == "held")
        except TooManyUnknownSenders:
            return False

    held = await asyncio.gather(*(one(message) for message in messages))
    return held.count(True), held.count(False)


async def full_notices(tester: InProcessButler) -> list[str]:
    return [words for words in await questions(tester) if "no room" in words]


async def test_full_hold_rejects_messages_and_notifies_the_owner_once(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 5)
    flooding = [mail(f"{n}", sender=f"{n % 2}@example.com") for n in range(12)]
    assert await flood(switchboard, flooding) == (5, 7)
    rows = await switchboard.rows("SELECT text, state FROM message_inbox")
    assert {row["state"] for row in rows} == {"held"}
    assert all(row["text"] for row in rows)
    assert len(await full_notices(switchboard)) == 1
    # A repeated message is a duplicate, and there is room again after the owner's decision.
    await call(switchboard, "contacts_block", channel="email", identity="0@example.com")
    await call(switchboard, "contacts_allow", channel="email", identity="1@example.com")
    for message in flooding:
        await ingest(switchboard, message)
    kept = await switchboard.rows("SELECT text FROM message_inbox WHERE text <> ''")
    assert sorted(row["text"] for row in kept) == sorted(f"{n}" for n in range(12))
    assert len(await full_notices(switchboard)) == 1


async def test_duplicate_of_a_held_message_is_recognized_when_full(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    message = mail("one")
    first = await ingest(switchboard, message)
    again = await ingest(switchboard, message)
    assert (again["request_id"], again["duplicate"]) == (first["request_id"], True)
    with pytest.raises(TooManyUnknownSenders) as refused:
        await ingest(switchboard, mail("two"))
    assert refused.value.retryable
    assert refused.value.hint


async def test_held_files_count_toward_the_limit(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD_BYTES", 2_000)
    file = {"media_type": "text/plain", "content": base64.b64encode(b"x" * 3_000).decode()}
    await ingest(switchboard, mail("small"))
    assert await full_notices(switchboard) == []
    await ingest(switchboard, mail("large", payload={"attachments": [file]}))
    assert len(await full_notices(switchboard)) == 1
    with pytest.raises(TooManyUnknownSenders):
        await ingest(switchboard, mail("small too"))
    assert (await ingest(switchboard, envelope("hello")))["status"] == "accepted"


@pytest.mark.parametrize("known", [False, True], ids=["unknown sender", "known sender"])
async def test_rejected_message_leaves_no_file(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")

    def with_file(text: str) -> dict[str, Any]:
        content = base64.b64encode(f"the file of {text}".encode()).decode()
        return mail(
            text, payload={"attachments": [{"media_type": "text/plain", "content": content}]}
        )

    def files() -> list[Path]:
        return [
            one for one in switchboard.butler.config.storage.blob_dir.rglob("*") if one.is_file()
        ]

    first = with_file("one")
    taken = await ingest(switchboard, first)
    (kept,) = files()
    monkeypatch.setattr("butlers.switchboard.senders.MAX_HELD", 1)
    async with full_inbox(switchboard):
        with pytest.raises(QueueFull):
            await ingest(switchboard, with_file("two"))
        again = await ingest(switchboard, first)
    assert (again["request_id"], again["duplicate"]) == (taken["request_id"], True)
    assert files() == [kept]


async def test_message_from_an_owner_address_counts_as_the_owners(
    switchboard: InProcessButler,
) -> None:
    await call(switchboard, "contacts_allow", channel="email", identity="me@home", role="owner")
    found = await ingest(switchboard, mail("weight 80", sender="me@home"))
    assert (await message_row(switchboard, found["request_id"]))["sender_roles"] == ["owner"]


@pytest.mark.parametrize("tool", ["contacts_allow", "contacts_block"])
async def test_owner_address_cannot_be_blocked(switchboard: InProcessButler, tool: str) -> None:
    with pytest.raises(InvalidArguments, match="is your own address"):
        await call(switchboard, tool, channel="console", identity="owner")
    assert (await ingest(switchboard, envelope("hello")))["status"] == "accepted"


async def test_only_the_owner_may_change_contacts(switchboard: InProcessButler) -> None:
    async with switchboard.peer("health") as peer, switchboard.session() as session:
        for client in (peer, session):
            for tool in ("contacts_allow", "contacts_block", "rules_add", "rules_remove"):
                with pytest.raises(ButlersError, match="may not call"):
                    await client.call(tool, {})


async def test_other_butlers_may_read_but_not_write_contacts(switchboard: InProcessButler) -> None:
    (row,) = await switchboard.rows(
        "SELECT has_table_privilege(r.rolname, 'shared.contacts', 'INSERT') AS writes"
        " FROM pg_roles r WHERE r.rolname LIKE '%switchboard'"
        " AND r.rolname = (SELECT tableowner FROM pg_tables WHERE tablename = 'message_inbox'"
        " AND schemaname = current_schema())"
    )
    assert row["writes"]


# -- the owner's rules -------------------------------------------------------------------------------


async def test_rule_routes_without_asking_a_model(switchboard: InProcessButler) -> None:
    switchboard.butler.spawner.model = model = FakeRuntime()
    await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    await call(
        switchboard,
        "rules_add",
        kind="domain",
        value="example.com",
        action="route",
        target="travel",
    )
    answer = await ingest(switchboard, mail("weight 80"))
    assert answer["triage_target"] == "travel"
    (found,) = await decisions(switchboard, answer["request_id"])
    assert (found["target"], found["rule"]) == ("travel", "rule")
    assert found["reason"] == "domain example.com → route travel"
    assert model.asked == []
    (rule,) = (await call(switchboard, "rules_list"))["rules"]
    assert rule["hits"] == 1
    assert rule["last_hit_at"]


async def test_skipped_message_is_stored_and_noted_one_loses_its_content(
    switchboard: InProcessButler,
) -> None:
    await call(switchboard, "rules_add", kind="header", header="List-Id", action="skip")
    await call(switchboard, "rules_add", kind="pattern", value="invoice", action="metadata_only")
    news = mail("news", payload={"raw": {"headers": {"List-Id": "<offers>"}}})
    skipped = await ingest(switchboard, news)
    noted = await ingest(
        switchboard, mail("the INVOICE of May", payload={"raw": {"body": "secret"}})
    )
    assert (skipped["status"], noted["status"]) == ("skipped", "noted")
    row = await message_row(switchboard, skipped["request_id"])
    assert (row["text"], row["state_reason"]) == ("news", "header List-Id → skip")
    row = await message_row(switchboard, noted["request_id"])
    assert (row["text"], row["raw"]) == ("", None)
    assert await switchboard.rows("SELECT 1 FROM queue_items") == []


async def test_low_priority_rule_lowers_the_tier(switchboard: InProcessButler) -> None:
    await call(switchboard, "rules_add", kind="sender", value="owner", action="low_priority")
    await ingest(switchboard, envelope("weight 80", control={"policy_tier": "high_priority"}))
    (item,) = await switchboard.rows("SELECT priority FROM queue_items WHERE queue = 'inbox'")
    assert item["priority"] == 2


async def test_rules_do_not_apply_to_the_owners_commands(switchboard: InProcessButler) -> None:
    await call(switchboard, "rules_add", kind="sender", value="owner", action="skip")
    assert (await ingest(switchboard, envelope("/stop")))["status"] == "accepted"
    assert (await ingest(switchboard, envelope("hello")))["status"] == "skipped"


async def test_rule_with_the_lowest_position_decides_and_can_be_removed(
    switchboard: InProcessButler,
) -> None:
    last = await call(
        switchboard, "rules_add", kind="sender", value="owner", action="skip", position=9
    )
    await call(
        switchboard,
        "rules_add",
        kind="sender",
        value="owner",
        action="route",
        target="travel",
        position=1,
    )
    assert (await ingest(switchboard, envelope("hi")))["triage_target"] == "travel"
    removed = await call(switchboard, "rules_remove", id=last["id"])
    assert removed["rule"] == "sender owner → skip"
    with pytest.raises(NotFound):
        await call(switchboard, "rules_remove", id=last["id"])


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"kind": "sender", "value": "a", "action": "route", "target": "nobody"}, "no butler"),
        ({"kind": "sender", "value": "a", "action": "route", "target": "messenger"}, "no butler"),
        ({"kind": "pattern", "value": "(", "action": "skip"}, "bad pattern"),
        ({"kind": "sender", "value": "", "action": "skip"}, "empty"),
    ],
)
async def test_rule_that_cannot_act_is_rejected(
    switchboard: InProcessButler, rule: dict[str, Any], why: str
) -> None:
    with pytest.raises(ButlersError, match=why) as refused:
        await call(switchboard, "rules_add", **rule)
    assert refused.value.hint
    assert (await call(switchboard, "rules_list"))["rules"] == []


async def test_repeated_decisions_suggest_a_rule_without_applying_it(
    switchboard: InProcessButler,
) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call("assign", {"butler": "travel", "reason": "a booking"})
        return ""

    switchboard.butler.spawner.model = FakeRuntime(think)
    await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    for number in range(3):
        await decided(switchboard, mail(f"booking {number}"))
    assert (await call(switchboard, "rules_suggest", at_least=4))["suggestions"] == []
    (found,) = (await call(switchboard, "rules_suggest", at_least=3))["suggestions"]
    assert found == {
        "kind": "sender",
        "value": "anna@example.com",
        "channel": "email",
        "action": "route",
        "target": "travel",
        "messages": 3,
    }
    assert (await call(switchboard, "rules_list"))["rules"] == []
    rule = {key: found[key] for key in ("kind", "value", "channel", "action", "target")}
    await call(switchboard, "rules_add", **rule)
    assert (await call(switchboard, "rules_suggest", at_least=3))["suggestions"] == []


# -- threads, answers, replays -----------------------------------------------------------------------


async def test_email_thread_stays_with_its_butler_and_a_chat_does_not(
    switchboard: InProcessButler,
) -> None:
    await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    thread = {"external_thread_id": "t-1"}
    assert await decided(switchboard, mail("my flight", event=_named("m-1", **thread))) == (
        "travel",
        "trigger",
    )
    assert await decided(switchboard, mail("and the seat?", event=_named("m-2", **thread))) == (
        "travel",
        "affinity",
    )
    assert (await decided(switchboard, mail("hi", event=_named("m-3", external_thread_id="t-2"))))[
        1
    ] == ("fallback")
    chat = {"external_thread_id": "chat"}
    await decided(switchboard, envelope("my flight", event=_named("c-1", **chat)))
    assert (await decided(switchboard, envelope("and the seat?", event=_named("c-2", **chat))))[
        1
    ] == "fallback"


async def test_old_thread_does_not_decide(switchboard: InProcessButler) -> None:
    await call(switchboard, "contacts_allow", channel="email", identity="anna@example.com")
    thread = {"external_thread_id": "t-1"}
    await decided(switchboard, mail("my flight", event=_named("m-1", **thread)))
    await switchboard.rows(
        "UPDATE message_inbox SET received_at = received_at - interval '31 days'"
    )
    assert (await decided(switchboard, mail("hi", event=_named("m-2", **thread))))[1] == "fallback"


async def test_explicit_reply_goes_to_the_butler_of_the_original_message(
    switchboard: InProcessButler,
) -> None:
    await decided(switchboard, envelope("my flight", event=_named("e-1")))
    reply = envelope("the other one", event=_named("e-2", external_reply_to="e-1"))
    assert await decided(switchboard, reply) == ("travel", "affinity")


async def test_decision_is_explained_then_and_with_current_rules(
    switchboard: InProcessButler,
) -> None:
    answer = await ingest(switchboard, envelope("my flight"))
    await decisions(switchboard, answer["request_id"])
    explained = await call(switchboard, "triage_explain", request_id=answer["request_id"])
    assert explained["then"] == [
        {"target": "travel", "rule": "trigger", "reason": "contains 'flight'"}
    ]
    assert [(step["step"], step["target"]) for step in explained["now"]] == [
        ("rules", None),
        ("reflexes", None),
        ("affinity", None),
        ("triggers", "travel"),
    ]
    await call(
        switchboard, "rules_add", kind="pattern", value="flight", action="route", target="health"
    )
    again = await call(switchboard, "triage_explain", request_id=answer["request_id"])
    assert again["then"] == explained["then"]
    assert [(step["step"], step["target"]) for step in again["now"]] == [("rules", "health")]
    (kept,) = await decisions(switchboard, answer["request_id"])
    assert kept["target"] == "travel", "a replay changes nothing"
    with pytest.raises(NotFound):
        await call(switchboard, "triage_explain", request_id=str(uuid7()))


# -- repeats -------------------------------------------------------------------------------------------


async def test_source_without_ids_is_deduplicated_by_text_for_some_minutes(
    switchboard: InProcessButler,
) -> None:
    nameless = {"event": {"external_event_id": ""}}
    first = await ingest(switchboard, envelope("took my ibuprofen", **nameless))
    again = await ingest(switchboard, envelope("took my ibuprofen", **nameless))
    assert (again["request_id"], again["duplicate"]) == (first["request_id"], True)
    other = await ingest(switchboard, envelope("took my aspirin", **nameless))
    assert not other["duplicate"]
    await switchboard.rows(
        "UPDATE message_inbox SET received_at = received_at - interval '5 minutes'"
    )
    later = await ingest(switchboard, envelope("took my ibuprofen", **nameless))
    assert not later["duplicate"], "a second genuine one counts"


async def test_source_with_ids_may_repeat_a_text(switchboard: InProcessButler) -> None:
    first, second = [await ingest(switchboard, envelope("took my ibuprofen")) for _ in range(2)]
    assert first["request_id"] != second["request_id"]
    assert not second["duplicate"]


async def test_same_text_in_two_threads_is_two_messages(switchboard: InProcessButler) -> None:
    first, second = [
        await ingest(switchboard, envelope("yes", event=_named("", external_thread_id=thread)))
        for thread in ("a", "b")
    ]
    assert not second["duplicate"]
    assert first["request_id"] != second["request_id"]


async def test_twenty_concurrent_messages_without_id_are_stored_once(
    switchboard: InProcessButler,
) -> None:
    message = envelope("weight 80", event={"external_event_id": ""})
    answers = await asyncio.gather(*(ingest(switchboard, message) for _ in range(20)))
    assert len({answer["request_id"] for answer in answers}) == 1


# -- attachments ---------------------------------------------------------------------------------------


def file(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    return {"media_type": media_type, "content": base64.b64encode(content).decode(), **more}


async def test_attachment_is_stored_by_content_and_readable(switchboard: InProcessButler) -> None:
    message = envelope(
        "look", payload={"attachments": [file(PNG, "image/jpeg", filename="cat.jpg")]}
    )
    answer = await ingest(switchboard, message)
    (kept,) = await _attachments(switchboard, answer["request_id"])
    assert kept["media_type"] == "image/png", "what it is, not what it says"
    assert (kept["filename"], kept["size_bytes"], kept["content"]) == ("cat.jpg", len(PNG), None)
    read = await call(switchboard, "get_attachment", storage_ref=kept["storage_ref"])
    assert base64.b64decode(read["content"]) == PNG


async def test_attachment_without_text_is_a_message(switchboard: InProcessButler) -> None:
    answer = await ingest(
        switchboard, envelope("", payload={"attachments": [file(PNG, "image/png")]})
    )
    assert answer["status"] == "accepted"


@pytest.mark.parametrize(
    ("attachments", "why"),
    [
        ([file(b"MZ\x90\x00", "image/png")], "is a program"),
        ([file(b"#!/bin/sh\n", "text/plain")], "is a program"),
        ([file(b"x", "application/x-msdownload")], "are not accepted"),
        ([{"media_type": "text/plain", "content": "no base64!"}], "not base64"),
        ([{"media_type": "text/plain"}], "needs content or storage_ref"),
        ([{"media_type": "text/plain", "storage_ref": "sha256:" + "0" * 64}], "no attachment"),
        ([{"media_type": "text/plain", "storage_ref": "../../etc/passwd"}], "not a storage_ref"),
        ([file(b"x", "text/plain")] * 11, "at most 10"),
        ([file(b"x" * (25 * 2**20 + 1), "text/plain")], "too large"),
    ],
)
async def test_invalid_attachment_rejects_the_message(
    switchboard: InProcessButler, attachments: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(ButlersError, match=why) as refused:
        await ingest(switchboard, envelope("look", payload={"attachments": attachments}))
    assert not isinstance(refused.value, InvalidMessage) or refused.value.hint
    assert await switchboard.count("message_inbox") == 0


# -- several butlers -----------------------------------------------------------------------------------


async def test_message_can_be_assigned_to_several_butlers(switchboard: InProcessButler) -> None:
    async def think(butler: McpClient) -> str:
        await butler.call(
            "assign", {"butler": "travel", "reason": "a trip", "part": "book the train"}
        )
        first = await butler.call("assign", {"butler": "travel", "reason": "again"})
        assert not first["added"], "one butler has one part"
        await butler.call(
            "assign",
            {"butler": "health", "reason": "pills", "part": "pack pills", "after_previous": True},
        )
        return ""

    switchboard.butler.spawner.model = FakeRuntime(think)
    answer = await ingest(switchboard, envelope("book the train, then pack pills"))
    first, second = await decisions(switchboard, answer["request_id"])
    assert (first["target"], first["part"], first["after_previous"]) == (
        "travel",
        "book the train",
        False,
    )
    assert (second["target"], second["part"], second["after_previous"]) == (
        "health",
        "pack pills",
        True,
    )


async def test_only_a_butler_with_a_part_may_report_its_end(switchboard: InProcessButler) -> None:
    answer = await ingest(switchboard, envelope("weight 80"))
    await decisions(switchboard, answer["request_id"])
    said = {"request_id": answer["request_id"], "well": True}
    async with switchboard.peer("travel") as peer:
        with pytest.raises(NotFound, match="travel has no part"):
            await peer.call("route_ended", said)
    async with switchboard.peer("health") as peer:
        await peer.call("route_ended", said)
    (row,) = await decisions(switchboard, answer["request_id"])
    assert row["ended_well"] is True


# -- connectors ----------------------------------------------------------------------------------------


def heartbeat(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": "connector.heartbeat.v1",
        "kind": "email",
        "endpoint_identity": "me@example.com",
        "instance_id": str(uuid7()),
        "sent_at": datetime.now(UTC).isoformat(),
        **changes,
    }


async def test_connector_health_from_first_heartbeat_to_silence(
    switchboard: InProcessButler,
) -> None:
    beat = heartbeat(counters={"messages_ingested": 3}, version="1.2")
    await call(switchboard, "connector_heartbeat", heartbeat=beat)
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert (one["kind"], one["endpoint"], one["health"]) == ("email", "me@example.com", "healthy")
    assert one["counters"]["messages_ingested"] == 3
    await switchboard.rows("UPDATE connectors SET heartbeat_at = now() - interval '1 minute'")
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert one["health"] == "down"
    assert "no heartbeat" in one["why"]


async def test_connector_with_only_refused_messages_is_rejected(
    switchboard: InProcessButler,
) -> None:
    await call(switchboard, "connector_heartbeat", heartbeat=heartbeat())
    for _ in range(3):
        with pytest.raises(ButlersError):
            await ingest(switchboard, mail(""))
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert one["health"] == "rejected"
    assert "empty" in one["why"]
    seen = {"new": 0, "noted": 0, "duplicate": 0, "refused": 3, "failed": 0}
    assert one["last_minute"] == seen


async def test_refused_messages_without_an_endpoint_are_listed(
    switchboard: InProcessButler,
) -> None:
    nameless = mail() | {"source": {"channel": "email", "provider": "imap"}}
    for _ in range(2):
        with pytest.raises(InvalidArguments):
            await ingest(switchboard, nameless)
    with pytest.raises(InvalidArguments):
        await ingest(
            switchboard, mail() | {"payload": {}}
        )  # with an endpoint, but without any heartbeat
    listed = (await call(switchboard, "connectors_list"))["connectors"]
    assert [(one["kind"], one["endpoint"], one["health"]) for one in listed] == [
        ("unknown", "(not said)", "rejected"),
        ("unknown", "me@example.com", "rejected"),
    ]
    assert "all 2 messages" in listed[0]["why"]


async def test_connector_that_reports_only_failures_is_rejected(
    switchboard: InProcessButler,
) -> None:
    beat = heartbeat(counters={"messages_failed": 2})
    await call(switchboard, "connector_heartbeat", heartbeat=beat)
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert (one["health"], one["last_minute"]["failed"]) == ("rejected", 2)
    again = beat | {"counters": {"messages_failed": 5, "messages_ingested": 1}}
    await call(switchboard, "connector_heartbeat", heartbeat=again)
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert one["last_minute"]["failed"] == 5, "each failure once"
    await ingest(switchboard, mail("one that comes through"))
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert one["health"] == "healthy"


async def test_connector_that_repeats_messages_is_looping(switchboard: InProcessButler) -> None:
    await call(switchboard, "connector_heartbeat", heartbeat=heartbeat())
    message = mail("again")
    async with switchboard.owner() as owner:
        for _ in range(22):
            await owner.call("ingest", message)
    (one,) = (await call(switchboard, "connectors_list"))["connectors"]
    assert one["health"] == "looping"


async def test_checkpoint_belongs_to_the_running_instance(switchboard: InProcessButler) -> None:
    old, new = heartbeat(), heartbeat()
    where = {"kind": "email", "endpoint": "me@example.com"}
    await call(switchboard, "connector_heartbeat", heartbeat=old)
    assert (await call(switchboard, "connector_checkpoint", **where))["cursor"] is None
    await call(
        switchboard, "connector_advance", instance_id=old["instance_id"], cursor={"uid": 7}, **where
    )
    await call(switchboard, "connector_heartbeat", heartbeat=new)
    with pytest.raises(ButlersError, match="another instance"):
        await call(
            switchboard,
            "connector_advance",
            instance_id=old["instance_id"],
            cursor={"uid": 3},
            **where,
        )
    found = await call(switchboard, "connector_checkpoint", **where)
    assert found["cursor"] == {"uid": 7}
    assert datetime.fromisoformat(found["saved_at"]) > datetime.now(UTC) - timedelta(hours=1)


def _named(event_id: str, **more: Any) -> dict[str, Any]:
    return {"external_event_id": event_id, **more}


async def _attachments(tester: InProcessButler, request_id: str) -> list[dict[str, Any]]:
    rows = await tester.rows(
        "SELECT value FROM message_inbox, jsonb_array_elements(attachments) WHERE request_id = $1",
        UUID(request_id),
    )
    return [json.loads(row["value"]) for row in rows]
