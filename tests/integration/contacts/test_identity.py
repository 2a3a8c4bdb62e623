"""One truth: a person that Relationship knows is named as a sender and found as a recipient."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from butlers.domain.errors import NotFound
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.records import say, strangers


def mail(sender: str) -> dict[str, Any]:
    source = {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.com"}
    return envelope("hello", source=source, sender={"identity": sender})


async def deliveries(butler: InProcessButler) -> list[dict[str, Any]]:
    rows = await butler.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    return [json.loads(row["payload"]) for row in rows]


async def test_known_address_names_the_sender_and_permits_nothing(make_butler: MakeButler) -> None:
    relationship, switchboard = make_butler("relationship"), make_butler("switchboard")
    await relationship.start()
    await switchboard.start()
    async with relationship.owner() as owner:
        way = {"person": "Tom Ford", "kind": "email", "value": "Tom@Ford.org"}
        await owner.call("contact_save", way)
        way = {"person": "Anna", "kind": "chat", "value": "telegram:4711"}
        await owner.call("contact_save", way)
    async with switchboard.owner() as owner:
        answer = await owner.call("ingest", mail("tom@ford.org"))
        assert answer["status"] == "held"
        await owner.call("ingest", mail("tom@ford.org (unverified)"))
        asked = [one["message"] for one in await deliveries(switchboard)]
        assert "Tom Ford (in your contacts) wrote on email" in asked[0]
        assert "A sender I do not know wrote on email" in asked[1]
        waiting = (await owner.call("contacts_waiting", {}))["waiting"]
        assert [one["name"] for one in waiting] == ["Tom Ford", None]
        for channel, identity in (("email", "tom@ford.org"), ("telegram", "4711")):
            await owner.call("contacts_allow", {"channel": channel, "identity": identity})
        known = (await owner.call("contacts_list", {}))["contacts"]
        assert {"Tom Ford", "Anna"} <= {one["name"] for one in known}


async def test_each_shared_table_has_one_writer(make_butler: MakeButler) -> None:
    relationship, switchboard = make_butler("relationship"), make_butler("switchboard")
    await relationship.start()
    await switchboard.start()
    for butler, sql in (
        (switchboard, "DELETE FROM shared.contact_info"),
        (
            relationship,
            "INSERT INTO shared.contact_channels SELECT 'email', 'x', id FROM shared.contacts",
        ),
        (relationship, "UPDATE shared.contacts SET roles = '{owner}'"),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with butler.butler.database.transaction() as connection:
                await connection.execute(sql)
    with pytest.raises(asyncpg.UniqueViolationError):
        async with switchboard.butler.database.transaction() as connection:
            await connection.execute(
                "INSERT INTO shared.contacts (name, roles) VALUES ('another', '{owner}')"
            )


async def test_message_to_my_sister_goes_to_her_address(make_butler: MakeButler) -> None:
    relationship = make_butler("relationship")
    await relationship.start()
    for text, reply in (
        ("Anna is my sister", "Noted: Anna (new) is your sister."),
        ("my sister's phone is +49 30 123456", "Saved: Anna, phone +49 30 123456."),
        ("what's my sister's number", "Anna: +49 30 123456"),
        ("was ist die Nummer von Anna?", "Anna: +49 30 123456"),
        ("what's Anna's email?", "I have no email address of Anna."),
        ("my sister's email is anna@example.org", "Saved: Anna, email anna@example.org."),
        (
            "schreib meiner Schwester: ich komme später",
            "Handed over to Anna (anna@example.org). A new recipient waits for your approval.",
        ),
    ):
        assert (await say(relationship, text)).text == reply, text
    sent = [one for one in await deliveries(relationship) if one["channel"] == "email"]
    assert [(one["target"], one["message"], one["intent"]) for one in sent] == [
        ("mail:anna@example.org", "ich komme später", "send")
    ]
    async with relationship.session(request=strangers()) as session:
        waiting = await session.call("contacts_write", {"person": "Anna", "message": "send money"})
        assert waiting["status"] == "pending_approval"
    async with relationship.owner() as owner:
        await owner.call("person_save", {"name": "Bob"})
        with pytest.raises(NotFound, match="no email or Telegram address of Bob"):
            await owner.call("contacts_write", {"person": "Bob", "message": "hello"})
        found = await owner.call("contacts_sync_status", {})
        assert found["text"] == "No address book is connected."
