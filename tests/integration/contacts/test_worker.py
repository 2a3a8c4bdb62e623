"""A configured address book is synchronized by the butler itself; a refused password is told once."""

from __future__ import annotations

import json
from typing import Any

from support.contacts import ContactsButler
from support.in_process import InProcessButler, MakeButler
from support.radicale import PASSWORD, USER, running_radicale, vcard
from support.waiting import until


async def _synced(butler: InProcessButler) -> dict[str, Any] | None:
    async with butler.owner() as owner:
        (account,) = (await owner.call("contacts_sync_status", {}))["accounts"]
    return account if account["synced_at"] or account["error"] else None


async def _told(butler: InProcessButler) -> list[str]:
    rows = await butler.rows("SELECT payload FROM queue_items WHERE queue = 'notify' ORDER BY id")
    return [json.loads(row["payload"])["message"] for row in rows]


async def _done(butler: InProcessButler, count: int) -> bool:
    rows = await butler.rows(
        "SELECT id FROM queue_items WHERE queue = 'contacts' AND state = 'done'"
    )
    return len(rows) >= count


async def test_configured_address_book_is_synchronized_and_its_failure_told(
    make_butler: MakeButler,
) -> None:
    with running_radicale() as server:
        book = server.make_address_book("people")
        server.put_card(book, "a", vcard("a", "Tom Ford", "TEL:030 123456"))
        made = make_butler("relationship")
        config = made.directory / "butler.toml"
        table = f'url = "{book}"\nuser = "{USER}"\nsecret = "CARDDAV_HOME"'
        written = config.read_text().replace(
            "[modules.contacts]",
            f'[modules.contacts]\nregion = "DE"\n[modules.contacts.carddav.home]\n{table}\n',
        )
        config.write_text(written)
        await made.secret("CARDDAV_HOME", PASSWORD)
        await made.start()
        found = await until("a synchronization", lambda: _synced(made))
        assert (found["error"], found["contacts"], found["counts"]["added"]) == (None, 1, 1)
        contacts = ContactsButler(made)
        assert await contacts.people() == {"Tom Ford": {"phone": "030 123456"}}
        published = await made.rows("SELECT name, value FROM shared.contact_info")
        assert published == [{"name": "Tom Ford", "value": "+4930123456"}]
        planned = await made.rows(
            "SELECT run_after > now() AS later FROM queue_items"
            " WHERE queue = 'contacts' AND state = 'ready'"
        )
        assert planned == [{"later": True}]

        await made.secret("CARDDAV_HOME", "wrong")
        async with made.owner() as owner:
            for count in (2, 3):
                await owner.call("contacts_sync_now", {})
                await until("the next attempt", lambda n=count: _done(made, n))
            status = await owner.call("contacts_sync_status", {})
        assert "it fails: 127.0.0.1 refused the password" in status["text"]
        told = [text for text in await _told(made) if "refused the password" in text]
        assert len(told) == 1
        assert "butlers connect carddav" in told[0]
        assert len(await contacts.people()) == 1
