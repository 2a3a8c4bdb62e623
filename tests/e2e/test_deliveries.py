"""Deliveries and approvals on the command line, against a fleet that posts to a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from support.fleet import wait_for
from support.questions import leave_question
from support.webhook_fleet import APPROVED, WebhookFleet, webhook_fleet
from support.webhook_server import CLOSE, FAIL, status


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home, approved=APPROVED) as running:
        yield running


def run(fleet: WebhookFleet, *arguments: str) -> str:
    done = fleet.butlers(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(fleet: WebhookFleet, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(fleet, *arguments, "--json"))
    return found


def refused(fleet: WebhookFleet, *arguments: str) -> str:
    done = fleet.butlers(*arguments)
    assert done.returncode == 1
    assert "hint:" in done.stderr
    return done.stderr


def test_an_unknown_delivery_is_listed_shown_and_sent_again(fleet: WebhookFleet) -> None:
    fleet.server.script(CLOSE)
    sent = fleet.notify("plain:anna", "is this there?")
    fleet.wait_state(sent, "unknown")

    found = listed(fleet, "deliveries", "list", "--state", "unknown")
    assert [one["delivery_id"] for one in found] == [str(sent)]
    table = run(fleet, "deliveries", "list", "--state", "unknown")
    assert str(sent) in table
    assert "did not answer" in table
    shown = json.loads(run(fleet, "deliveries", "show", str(sent)))
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["uncertain"]

    assert str(sent) in run(fleet, "deliveries", "resend", str(sent))
    fleet.wait_state(sent, "delivered")
    assert fleet.server.times[str(sent)] == 2
    assert "delivered" in refused(fleet, "deliveries", "resend", str(sent))


def test_the_trace_shows_state_reason_and_each_attempt(fleet: WebhookFleet) -> None:
    request_id = uuid7()
    fleet.server.script(FAIL, status(422, "no such person"))
    sent = fleet.reply("sure:anna", "hello", request_id)
    fleet.wait_state(sent, "failed")
    told = run(fleet, "trace", str(request_id))
    ours = (line for line in told.splitlines() if " messenger " in line)
    lines = [line for line in ours if " queued " not in line]
    assert [line.split()[3] for line in lines] == ["delivery", "attempt", "attempt"]
    assert "reply to sure:anna, failed" in lines[0]
    assert "number 1 to sure:anna, failed" in lines[1]
    assert "number 2 to sure:anna, refused" in lines[2]
    assert "no such person" in lines[2]


def test_approvals_are_listed_approved_and_rejected(fleet: WebhookFleet) -> None:
    wanted, unwanted = (fleet.notify(f"plain:{who}", "may I?") for who in ("ben", "carol"))
    asked = {
        action["tool_args"]["delivery_id"]: action["id"]
        for action in _open(fleet, wanted, unwanted)
    }
    assert "may I?" in run(fleet, "approvals", "list")

    approved = run(fleet, "approvals", "approve", asked[str(wanted)])
    assert f"executed {asked[str(wanted)]}" in approved
    done = json.loads(run(fleet, "approvals", "reject", asked[str(unwanted)], "--json"))
    assert (done["status"], done["also_decided"]) == ("rejected", [])
    fleet.wait_state(wanted, "delivered")
    fleet.wait_state(unwanted, "discarded")
    assert listed(fleet, "approvals", "list") == []
    states = {
        action["tool_args"]["delivery_id"]: action["status"]
        for action in listed(fleet, "approvals", "list", "--all")
    }
    assert (states[str(wanted)], states[str(unwanted)]) == ("executed", "rejected")
    assert str(unwanted) not in fleet.server.times
    assert "rejected already" in refused(fleet, "approvals", "approve", asked[str(unwanted)])
    refused(fleet, "approvals", "approve", str(uuid7()))


def test_action_is_shown_approved_always_undone_and_its_rule_revoked(fleet: WebhookFleet) -> None:
    action = str(leave_question(fleet, "note_add", {"text": "spare key with Ben"}))
    shown = json.loads(run(fleet, "approvals", "show", action))
    assert (shown["butler"], shown["status"]) == ("general", "pending")
    assert shown["tool_args"] == {"text": "spare key with Ben"}
    assert shown["why"] == "it was gated"

    code = action.replace("-", "")[-6:]
    assert f"executed {action}" in run(fleet, "approvals", "approve", code, "--always", "--yes")
    assert _notes(fleet) == 1
    (rule,) = listed(fleet, "approvals", "rules")
    assert (rule["butler"], rule["tool_name"]) == ("general", "note_add")
    assert rule["arg_constraints"]["text"]["value"] == "spare key with Ben"
    assert "note_add" in run(fleet, "approvals", "rules")

    assert f"undone {action}" in run(fleet, "approvals", "undo", action)
    assert _notes(fleet) == 0
    events = json.loads(run(fleet, "approvals", "show", action))["events"]
    assert [one["event"] for one in events][-1] == "action_undone"
    assert f"revoked {rule['id']}" in run(fleet, "approvals", "rules", "--revoke", rule["id"][:13])
    assert [one for one in listed(fleet, "approvals", "rules") if one["active"]] == []
    assert isinstance(listed(fleet, "approvals", "rules", "--suggest"), list)
    refused(fleet, "approvals", "undo", str(uuid7()))
    refused(fleet, "approvals", "rules", "--revoke", str(uuid7()))


def _notes(fleet: WebhookFleet) -> int:
    return int(fleet.rows("SELECT count(*) FROM general.notes")[0][0])


def test_owner_decides_by_chat_and_status_counts_questions(fleet: WebhookFleet) -> None:
    wanted, unwanted = (fleet.notify(f"plain:{who}", "may I?") for who in ("dora", "emil"))
    codes = [fleet.question(one).replace("-", "")[-6:] for one in (wanted, unwanted)]
    states = json.loads(fleet.butlers("status", "--json").stdout)
    (messenger,) = [one for one in states if one["name"] == "messenger"]
    assert messenger["questions"] >= 2
    assert "Which one?" in run(fleet, "send", "/yes", "--wait")
    assert "Done: " in run(fleet, "send", f"yes {codes[0]}", "--wait")
    assert "Not done: " in run(fleet, "send", f"No {codes[1]}", "--wait")
    fleet.wait_state(wanted, "delivered")
    fleet.wait_state(unwanted, "discarded")
    again = run(fleet, "send", f"yes {codes[1]}", "--wait")
    assert "Done" not in again
    assert fleet.wait_state(unwanted, "discarded")


def _open(fleet: WebhookFleet, *parked: UUID) -> list[dict[str, Any]]:
    for one in parked:
        fleet.wait_state(one, "parked")
    return listed(fleet, "approvals", "list")


def test_an_answer_to_our_own_message_goes_to_the_butler_that_wrote_it(fleet: WebhookFleet) -> None:
    sent = fleet.reply("plain:anna", "your pulse is fine", uuid7())
    proof = fleet.wait_state(sent, "delivered")
    fleet.call("switchboard", "contacts_allow", {"channel": "webhook", "identity": "plain:anna"})
    answer = fleet.call(
        "switchboard",
        "ingest",
        {
            "schema_version": "ingest.v1",
            "source": {
                "channel": "webhook",
                "provider": "webhook",
                "endpoint_identity": "plain:anna",
            },
            "event": {
                "external_event_id": str(uuid7()),
                "observed_at": "2026-01-01T00:00:00Z",
                "external_reply_to": proof["provider_message_id"],
            },
            "sender": {"identity": "plain:anna"},
            "payload": {"normalized_text": "good to know"},
        },
    )
    decision = wait_for("a decision", lambda: _decision(fleet, answer["request_id"]))
    assert decision == (proof["origin"], "affinity")


def _decision(fleet: WebhookFleet, request_id: str) -> tuple[str, str] | None:
    rows = fleet.rows(
        "SELECT target, rule FROM switchboard.route_decisions WHERE request_id = $1",
        UUID(request_id),
    )
    return (rows[0]["target"], rows[0]["rule"]) if rows else None
