"""Synchronization of address books with people: matching, ownership of fields, lost cursors, crashes."""

from __future__ import annotations

from typing import Any

import pytest

from butlers.modules.contacts.sync import TooManyRemovals
from support.contacts import ContactsButler, MemorySource
from support.in_process import MakeButler


@pytest.fixture
async def contacts(make_butler: MakeButler) -> ContactsButler:
    made = make_butler("relationship")
    await made.start()
    found = ContactsButler(made)
    await found.connect("home", "work")
    return found


async def test_address_and_phone_match_a_known_person_and_a_name_waits(
    contacts: ContactsButler,
) -> None:
    async with contacts.butler.owner() as owner:
        for person, kind, value in (
            ("Tom Ford", "email", "Tom@Ford.org"),
            ("Anna Berg", "phone", "+49 170 1234567"),
        ):
            way = {"person": person, "kind": kind, "value": value}
            await owner.call("contact_save", way)
        await owner.call("person_save", {"name": "Carl Jung"})
        book = MemorySource()
        book.put("1", "Thomas Ford", ("email", "tom@ford.org"), ("phone", "+1 212 555 0100"))
        book.put("2", "Anna B.", ("phone", "0049170/1234567"))
        book.put("3", "Carl Jung", ("email", "carl@example.org"))
        book.put("4", "Dora", ("email", "family@example.org"))
        book.put("5", "Emil", ("email", "family@example.org"))
        counts = await contacts.pull(book)
        assert (counts.added, counts.matched, counts.to_confirm) == (2, 2, 1)
        people = await contacts.people()
        assert people["Tom Ford"] == {"email": "Tom@Ford.org", "phone": "+1 212 555 0100"}
        assert people["Carl Jung"] == {}
        assert {"Dora", "Emil"} <= people.keys()
        found = await owner.call("contacts_find", {"person": "Thomas Ford", "kind": "phone"})
        assert found["text"] == "Tom Ford: +1 212 555 0100"

        listed = await owner.call("contacts_source_list", {})
        assert [one["name"] for one in listed["waiting"]] == ["Carl Jung"]
        await owner.call("contacts_source_reconcile", {"name": "Carl Jung", "same": True})
        assert (await contacts.people())["Carl Jung"] == {"email": "carl@example.org"}
        book.put("3", "Carl Jung", ("email", "new@example.org"))
        await contacts.pull(book)
        assert (await contacts.people())["Carl Jung"] == {"email": "new@example.org"}


async def test_source_changes_only_what_it_said_itself(contacts: ContactsButler) -> None:
    home, work = MemorySource(), MemorySource()
    home.put("a", "Alice", ("email", "a@example.org"), ("phone", "+49 30 1"), company="Acme")
    await contacts.pull(home)
    async with contacts.butler.owner() as owner:
        await owner.call(
            "contact_save", {"person": "Alice", "kind": "phone", "value": "+49 170 7654321"}
        )
        await owner.call("person_save", {"name": "Alice", "company": "My own company"})
        work.put("x", "Alice", ("email", "a@example.org"))
        assert (await contacts.pull(work, "work")).matched == 1
        home.put("a", "Alice Smith", company="Other Inc")
        await contacts.pull(home)
        shown = await owner.call("person_show", {"person": "Alice Smith"})
        assert shown["company"] == "My own company"
        # The email is the work address book's as well; the number is the owner's.
        assert [way["value"] for way in shown["contacts"]] == ["a@example.org", "+49 170 7654321"]
        home.delete("a")
        work.delete("x")
        await contacts.pull(home)
        await contacts.pull(work, "work")
        assert (await contacts.people()) == {"Alice Smith": {"phone": "+49 170 7654321"}}


async def test_lost_token_and_old_full_sync_make_no_duplicates(contacts: ContactsButler) -> None:
    book = MemorySource()
    for number in range(30):
        book.put(str(number), f"Person {number}", ("email", f"p{number}@example.org"))
    assert (await contacts.pull(book)).added == 30
    before = await contacts.people()
    book.oldest = book.version + 1
    book.put("0", "Person 0", ("email", "other@example.org"))
    counts = await contacts.pull(book)
    assert (counts.added, counts.changed, counts.removed) == (0, 1, 0)
    book.oldest = 0
    book.delete("1")
    await contacts.forget_full()
    assert (await contacts.pull(book)).removed == 1
    assert book.pulls[0] is None
    assert book.pulls[2:] == [None, None]
    after = await contacts.people()
    assert after.keys() == before.keys() - {"Person 1"}
    assert after["Person 0"] == {"email": "other@example.org"}


async def test_broken_sync_is_repeated_without_duplicates(contacts: ContactsButler) -> None:
    book = MemorySource(batch=10)
    for number in range(35):
        book.put(str(number), f"Person {number}", ("email", f"p{number}@example.org"))
    for batches in (1, 2, 3):
        book.breaks_after = batches
        with pytest.raises(ConnectionResetError):
            await contacts.pull(book)
        assert len(await contacts.people()) == 10 * batches
    book.breaks_after = None
    await contacts.pull(book)
    assert len(await contacts.people()) == 35
    assert book.pulls == [None] * 4


async def test_empty_address_book_removes_nothing_without_a_word(contacts: ContactsButler) -> None:
    book = MemorySource()
    for number in range(40):
        book.put(str(number), f"Person {number}")
    await contacts.pull(book)
    empty = MemorySource()
    await contacts.forget_full()
    with pytest.raises(TooManyRemovals, match="lost 40 of 40"):
        await contacts.pull(empty)
    assert len(await contacts.people()) == 40
    assert (await contacts.pull(empty, may_remove=True)).removed == 40
    assert await contacts.people() == {}


async def test_merge_unmerge_and_undo_keep_the_link(contacts: ContactsButler) -> None:
    book = MemorySource()
    book.put("a", "Bob", ("email", "bob@example.org"))
    await contacts.pull(book)
    async with contacts.butler.owner() as owner:
        await owner.call("person_save", {"name": "Robert King", "new": True})
        await owner.call("person_merge", {"keep": "Robert King", "other": "Bob"})
        book.put("a", "Bob", ("email", "bob@example.org"), ("phone", "+1 212 555 0100"))
        await contacts.pull(book)
        assert (await contacts.people())["Robert King"]["phone"] == "+1 212 555 0100"
        await owner.call("person_unmerge", {"person": "Robert King"})
        book.put("a", "Bob", ("email", "b@example.org"))
        await contacts.pull(book)
        assert (await contacts.people())["Bob"]["email"] == "b@example.org"
        await owner.call("undo", {})
        assert (await contacts.people())["Bob"]["email"] == "bob@example.org"
        await contacts.forget_full()
        await contacts.pull(book)
        assert (await contacts.people())["Bob"]["email"] == "b@example.org"
        rows = await contacts.butler.rows("SELECT id FROM people WHERE name = 'Bob'")
        history = await owner.call("record_history", {"record_id": str(rows[0]["id"])})
        assert history["changes"][0]["sender"] == "address book carddav home"


async def _published(contacts: ContactsButler) -> set[tuple[Any, ...]]:
    rows = await contacts.butler.rows("SELECT name, type, value FROM shared.contact_info")
    return {tuple(row.values()) for row in rows}


async def test_addresses_are_published_with_every_change(contacts: ContactsButler) -> None:
    async with contacts.butler.owner() as owner:
        way = {"person": "Tom", "kind": "email", "value": "Tom@Example.org"}
        await owner.call("contact_save", way)
        assert await _published(contacts) == {("Tom", "email", "tom@example.org")}
        await owner.call("person_save", {"name": "Tom", "new_name": "Tom Ford"})
        assert await _published(contacts) == {("Tom Ford", "email", "tom@example.org")}
        await owner.call("person_save", {"name": "Thomas", "new": True})
        await owner.call("person_merge", {"keep": "Thomas", "other": "Tom Ford"})
        assert await _published(contacts) == {("Thomas", "email", "tom@example.org")}
        await owner.call("undo", {})
        assert await _published(contacts) == {("Tom Ford", "email", "tom@example.org")}
