"""One message through separate processes, end to end; each hop is read from its own tables."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from support.fleet import BUTLERS, Fleet, wait_for


def queue_row(fleet: Fleet, schema: str, queue: str, key: str) -> dict[str, object]:
    def done() -> dict[str, object] | None:
        found = fleet.rows(
            f"SELECT * FROM {schema}.queue_items WHERE queue = $1 AND key = $2", queue, key
        )
        return dict(found[0]) if found and found[0]["state"] == "done" else None

    return wait_for(f"{schema}.{queue} {key} to be done", done)


def test_message_is_answered_and_every_hop_is_recorded(fleet: Fleet) -> None:
    request_id = fleet.send("weight 80.4 kg")

    (reply,) = fleet.replies(request_id)
    assert reply.message == "Logged: weight 80.4 kg."
    assert reply.origin == "health"

    assert_switchboard_routed(fleet, request_id)
    assert_health_worked(fleet, request_id)
    assert_messenger_delivered(fleet, request_id, reply.delivery_id)


def assert_switchboard_routed(fleet: Fleet, request_id: UUID) -> None:
    (message,) = fleet.rows(
        "SELECT * FROM switchboard.message_inbox WHERE request_id = $1", request_id
    )
    assert message["text"] == "weight 80.4 kg"
    assert message["channel"] == "console"
    assert message["sender_roles"] == ["owner"]
    (decision,) = fleet.rows(
        "SELECT * FROM switchboard.route_decisions WHERE request_id = $1", request_id
    )
    assert (decision["target"], decision["rule"]) == ("health", "reflex")
    assert decision["routed_at"] >= message["received_at"]
    queue_row(fleet, "switchboard", "inbox", str(request_id))


def assert_health_worked(fleet: Fleet, request_id: UUID) -> None:
    route = queue_row(fleet, "health", "routes", str(request_id))
    (session,) = fleet.rows("SELECT * FROM health.sessions WHERE request_id = $1", request_id)
    assert session["runtime"] == "reflex"
    assert session["success"] is True
    assert route["result"] is not None
    (row,) = fleet.rows("SELECT * FROM health.measurements")
    assert (row["type"], str(row["value"]), row["unit"]) == ("weight", "80.4", "kg")
    journal = fleet.rows(
        "SELECT tool FROM health.call_journal WHERE request_id = $1 ORDER BY called_at", request_id
    )
    assert [call["tool"] for call in journal] == ["measurement_log", "notify"]
    audit = fleet.rows(
        "SELECT tool, ok FROM health.tool_calls WHERE session_id = $1 ORDER BY id", session["id"]
    )
    assert [(call["tool"], call["ok"]) for call in audit] == [
        ("measurement_log", True),
        ("notify", True),
    ]


def assert_messenger_delivered(fleet: Fleet, request_id: UUID, delivery_id: UUID) -> None:
    for schema, queue in (("health", "notify"), ("switchboard", "deliveries")):
        (item,) = fleet.rows(
            f"SELECT key FROM {schema}.queue_items WHERE queue = $1"
            " AND payload::jsonb ->> 'request_id' = $2",
            queue,
            str(request_id),
        )
        queue_row(fleet, schema, queue, item["key"])
    queue_row(fleet, "messenger", "deliveries", str(delivery_id))
    (delivery,) = fleet.rows("SELECT * FROM messenger.deliveries WHERE request_id = $1", request_id)
    assert delivery["delivery_id"] == delivery_id
    assert delivery["provider_message_id"] is not None
    assert delivery["delivered_at"] is not None
    (mail,) = fleet.rows(
        "SELECT * FROM messenger.console_mailbox WHERE request_id = $1", request_id
    )
    assert mail["shown_at"] is not None


def test_owner_sees_the_stored_measurement(fleet: Fleet) -> None:
    fleet.replies(fleet.send("weight 81.25 kg"))
    latest = fleet.call("health", "measurement_latest", {"type": "weight"})
    assert (latest["value"], latest["unit"]) == ("81.25", "kg")


def test_unmatched_message_is_answered_by_general(fleet: Fleet) -> None:
    request_id = fleet.send("please compose a sonnet about the sea")
    (reply,) = fleet.replies(request_id)
    assert reply.origin == "general"
    assert "no language model" in reply.message
    (decision,) = fleet.rows(
        "SELECT target, rule FROM switchboard.route_decisions WHERE request_id = $1", request_id
    )
    assert tuple(decision) == ("general", "fallback")


def test_repeated_message_is_answered_once(fleet: Fleet) -> None:
    first = fleet.send("pulse 62", event_id="the-same-event")
    again = fleet.send("pulse 62", event_id="the-same-event")
    assert first == again
    assert len(fleet.replies(first)) == 1
    rows = fleet.rows("SELECT count(*) FROM health.measurements WHERE type = 'pulse'")
    assert rows[0][0] == 1


def test_every_butler_can_notify_the_owner(fleet: Fleet) -> None:
    for name in BUTLERS:
        fleet.call(name, "notify", {"message": f"{name} says hello"})

    def all_there() -> list[str] | None:
        mail = fleet.call("messenger", "console_receive", {"wait_s": 1})["mail"]
        said = sorted(item["message"] for item in mail if item["message"].endswith("says hello"))
        return said if len(said) >= len(BUTLERS) else None

    assert wait_for("four hellos", all_there) == [f"{name} says hello" for name in sorted(BUTLERS)]


def test_trace_shows_every_hop_of_a_request(fleet: Fleet) -> None:
    request_id = fleet.send("pulse 66")
    assert fleet.replies(request_id)

    def traced() -> list[dict[str, Any]] | None:
        done = fleet.butlers("trace", str(request_id), "--json")
        assert done.returncode == 0, done.stderr
        hops: list[dict[str, Any]] = json.loads(done.stdout)
        over = ("done", "accepted", "delivered")
        return hops if all(hop.get("state", "done") in over for hop in hops) else None

    hops = wait_for("every hop to be done", traced)
    assert [(hop["butler"], hop["queue"]) for hop in hops if hop["hop"] == "queued"] == [
        ("switchboard", "inbox"),
        ("health", "routes"),
        ("health", "notify"),
        ("switchboard", "deliveries"),
        ("messenger", "deliveries"),
    ]
    assert [(hop["butler"], hop["hop"]) for hop in hops if hop["hop"] != "queued"] == [
        ("switchboard", "received"),
        ("switchboard", "decided"),
        ("health", "session"),
        ("health", "call"),
        ("health", "call"),
        ("messenger", "delivery"),
        ("messenger", "attempt"),
    ]
    assert hops[2]["target"] == "health"
    assert hops[-2]["provider_message_id"]
    shown = fleet.butlers("trace", str(request_id))
    assert "for health by reflex" in shown.stdout
    assert "delivered as" in shown.stdout
    unknown = fleet.butlers("trace", "00000000-0000-7000-8000-000000000000")
    assert unknown.returncode == 1
    assert "hint:" in unknown.stderr
