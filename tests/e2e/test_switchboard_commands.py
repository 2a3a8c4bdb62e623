"""CLI commands for the Switchboard: rules, contacts, connectors, triage, owner commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from butlers.domain.clock import uuid7
from support.fleet import Fleet, wait_for


def document(fleet: Fleet, *arguments: str) -> Any:
    done = fleet.butlers(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def from_outside(fleet: Fleet, text: str, sender: str) -> dict[str, Any]:
    envelope = {
        "schema_version": "ingest.v1",
        "source": {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.com"},
        "event": {
            "external_event_id": str(uuid7()),
            "observed_at": "2026-01-01T00:00:00Z",
        },
        "sender": {"identity": sender},
        "payload": {"normalized_text": text, "raw": {"headers": {}}},
    }
    answer: dict[str, Any] = fleet.call("switchboard", "ingest", envelope)
    return answer


def test_rules_are_added_listed_and_removed(fleet: Fleet) -> None:
    added = fleet.butlers("rules", "add", "domain", "shop.example", "skip", "--note", "offers")
    assert added.returncode == 0, added.stderr
    assert "domain shop.example → skip" in added.stdout
    assert from_outside(fleet, "buy!", "news@shop.example")["status"] == "skipped"
    (rule,) = document(fleet, "rules", "list")
    assert (rule["hits"], rule["note"]) == (1, "offers")
    assert "shop.example" in fleet.butlers("rules", "list").stdout
    removed = fleet.butlers("rules", "remove", rule["id"][:13])
    assert "removed" in removed.stdout
    assert document(fleet, "rules", "list") == []
    assert document(fleet, "rules", "suggest") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("rules", "add", "colour", "red", "skip"), "'sender', 'domain', 'header' or 'pattern'"),
        (("rules", "add", "sender", "a", "route", "nobody"), "there is no butler 'nobody'"),
        (("rules", "add", "pattern", "(", "skip"), "bad pattern"),
        (("rules", "remove", "ffff"), "no rules start with 'ffff'"),
        (("contacts", "block", "console", "owner"), "is your own address"),
        (("triage", str(uuid7())), "there is no message"),
        (("triage", "not-an-id"), "request_id"),
    ],
)
def test_invalid_commands_explain_the_error_with_a_hint(
    fleet: Fleet, arguments: tuple[str, ...], told: str
) -> None:
    done = fleet.butlers(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert told in done.stderr
    assert "hint:" in done.stderr


def test_unknown_sender_waits_for_the_owners_decision(fleet: Fleet) -> None:
    held = from_outside(fleet, "it is me, Anna", "anna@example.com")
    assert held["status"] == "held"
    asked = wait_for("the question", lambda: _mail(fleet, "anna@example.com"))
    assert "butlers contacts allow " in asked
    (waiting,) = document(fleet, "contacts", "waiting")
    assert (waiting["sender"], waiting["messages"]) == ("anna@example.com", 1)
    allowed = fleet.butlers("contacts", "allow", "email", "anna@example.com", "--name", "Anna")
    assert "1 held messages are processed now" in allowed.stdout
    assert document(fleet, "contacts", "waiting") == []
    known = {one["identity"]: one for one in document(fleet, "contacts", "list")}
    assert known["anna@example.com"]["name"] == "Anna"
    assert known["owner"]["roles"] == ["owner"]


def test_triage_explain_shows_the_decision(fleet: Fleet) -> None:
    request_id = fleet.send("pulse 71")
    assert fleet.replies(request_id)
    told = document(fleet, "triage", str(request_id))
    assert [one["target"] for one in told["then"]] == ["health"]
    shown = fleet.butlers("triage", str(request_id)).stdout
    assert "then: for health by reflex" in shown
    assert "reflexes" in shown


def test_connectors_are_listed(fleet: Fleet) -> None:
    assert document(fleet, "connectors") == []
    beat = {
        "kind": "email",
        "endpoint_identity": "me@example.com",
        "instance_id": str(uuid7()),
        "sent_at": "2026-01-01T00:00:00Z",
    }
    fleet.call("switchboard", "connector_heartbeat", {"heartbeat": beat})
    (one,) = document(fleet, "connectors")
    assert (one["endpoint"], one["health"]) == ("me@example.com", "healthy")
    assert "healthy" in fleet.butlers("connectors").stdout


def test_owner_commands_are_carried_out_by_message(fleet: Fleet) -> None:
    (status,) = fleet.replies(fleet.send("/status"))
    assert [line.split(":")[0] for line in status.message.splitlines()] == [
        "general",
        "health",
        "messenger",
        "switchboard",
    ]
    (paused,) = fleet.replies(fleet.send("/pause 1 hour"))
    assert paused.message.startswith("Paused until")
    kept = fleet.send("pulse 72")
    wait_for("it to be kept", lambda: _postponed(fleet, str(kept)))
    (resumed,) = fleet.replies(fleet.send("/resume"))
    assert resumed.message == "Resumed."
    assert [reply.message for reply in fleet.replies(kept)] == ["Logged: pulse 72 bpm."]
    said = fleet.send("/stop")
    (stopped,) = fleet.replies(said)
    assert stopped.message == "Nothing was running."
    assert "commands, /stop, done" in fleet.butlers("trace", str(said)).stdout


def _mail(fleet: Fleet, about: str) -> str | None:
    rows = fleet.rows("SELECT message FROM messenger.console_mailbox")
    return next((row["message"] for row in rows if about in row["message"]), None)


def _postponed(fleet: Fleet, key: str) -> bool:
    rows = fleet.rows(
        "SELECT error FROM health.queue_items WHERE queue = 'routes' AND key = $1", key
    )
    return bool(rows and rows[0]["error"])
