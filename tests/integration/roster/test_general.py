"""The General butler's tools on a real database."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.wire.client import McpClient
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context

NOW = datetime(2026, 5, 6, 10, 0, tzinfo=UTC)  # a Wednesday


@pytest.fixture
async def general(make_butler: MakeButler) -> InProcessButler:
    made = make_butler("general")
    await made.start()
    return made


def asked(at: datetime = NOW, **changes: Any) -> Any:
    return replace(request_context(), received_at=at, **changes)


async def titles(session: McpClient, **arguments: Any) -> list[tuple[str, str | None]]:
    shown = await session.call("list_show", arguments)
    return [(item["title"], item["due"]) for item in shown["items"]]


async def test_notes_are_kept_found_changed_deleted_and_brought_back(
    general: InProcessButler,
) -> None:
    async with general.session(request=asked()) as session:
        key = await session.call("note_add", {"text": "Spare key is with Alice #home"})
        await session.call("note_add", {"text": "Garage code 1234", "tags": ["Home", "codes"]})
        assert key["tags"] == ["home"]
        found = await session.call("note_search", {"query": "alice KEY"})
        assert [note["id"] for note in found["notes"]] == [key["id"]]
        tagged = await session.call("note_search", {"tag": "home"})
        assert len(tagged["notes"]) == 2
        changed = await session.call("note_update", {"id": key["id"], "text": "Key is with Bob"})
        assert changed["text"] == "Key is with Bob"
        page = await session.call("note_search", {"limit": 1})
        rest = await session.call("note_search", {"limit": 1, "after": page["next"]})
        assert (page["notes"][0]["text"], rest["notes"][0]["text"]) == (
            "Garage code 1234",
            "Key is with Bob",
        )
    async with general.session(request=asked()) as session:
        await session.call("note_delete", {"id": key["id"]})
    async with general.session(request=asked()) as session:
        assert (await session.call("undo", {}))["text"] == "note “Key is with Bob” brought back"
        with pytest.raises(NotFound):
            await session.call("note_delete", {"id": str(asked().request_id)})


async def test_list_items_are_added_once_shown_by_due_date_and_checked_off(
    general: InProcessButler,
) -> None:
    async with general.session(request=asked()) as session:
        added = await session.call(
            "list_add", {"items": ["milk, eggs and bread"], "list": "Einkaufsliste"}
        )
        assert added["text"] == "Added to shopping: milk, eggs, bread."
        again = await session.call("list_add", {"items": ["Milk", "tea"], "list": "shopping"})
        assert again["text"] == "Added to shopping: tea. Already on shopping: Milk."
        await session.call("list_add", {"items": ["call Bob, then Alice"], "due": "friday"})
        await session.call("list_add", {"items": ["taxes"], "due": "tomorrow at 9"})
        await session.call("list_add", {"items": ["rest"]})
        shown = await titles(session, list="to-do")
        assert [title for title, _ in shown] == ["taxes", "call Bob, then Alice", "rest"]
        assert [due for _, due in shown] == ["tomorrow at 09:00", "Fri 8 May", None]
        assert await titles(session, list="todos", due="tomorrow") == shown[:1]
        done = await session.call("list_check", {"item": "milk", "list": "shopping"})
        assert done["text"] == "Done: milk."
        lists = await session.call("list_names", {})
        assert lists["lists"] == [
            {"list": "shopping", "open": 3, "done": 1},
            {"list": "to-do", "open": 3, "done": 0},
        ]
        with pytest.raises(NotFound, match="no open item 'milk'"):
            await session.call("list_check", {"item": "milk"})
        await session.call("list_add", {"items": ["green tea"], "list": "shopping"})
        await session.call("list_update", {"item": "tea", "list": "shopping", "due": "8 May"})
        assert ("tea", "Fri 8 May") in await titles(session, list="shopping")
        with pytest.raises(InvalidArguments, match="fits several items"):
            await session.call("list_remove", {"item": "te", "list": "shopping"})
        cleared = await session.call("list_clear", {"list": "shopping"})
        assert cleared["removed"] == 1


async def test_done_item_that_repeats_comes_back_and_undo_takes_both_back(
    general: InProcessButler,
) -> None:
    async with general.session(request=asked()) as session:
        await session.call("list_add", {"items": ["trash"], "repeat": "every monday"})
        await session.call(
            "list_add", {"items": ["rent"], "due": "31 January 2027", "repeat": "monthly"}
        )
        assert await titles(session) == [("trash", "Mon 11 May"), ("rent", "Sun 31 January 2027")]
    check = asked(datetime(2026, 5, 20, 10, tzinfo=UTC))
    async with general.session(request=check) as session:
        done = await session.call("list_check", {"item": "trash"})
        assert done["text"] == "Done: trash. Next: Mon 25 May."
        later = asked(datetime(2027, 2, 1, 10, tzinfo=UTC))
    async with general.session(request=later) as session:
        assert (await session.call("list_check", {"item": "rent"}))["text"].endswith(
            "Sun 28 February."
        )
    async with general.session(request=asked(datetime(2027, 3, 1, 10, tzinfo=UTC))) as session:
        assert (await session.call("list_check", {"item": "rent"}))["text"].endswith(
            "Wed 31 March."
        )
    async with general.session(request=asked()) as session:
        await session.call("undo", {"request_id": str(check.request_id)})
        assert ("trash", "Mon 11 May") in await titles(session, list="to-do")
        with pytest.raises(InvalidArguments, match="no repetition"):
            await session.call("list_add", {"items": ["x"], "repeat": "sometimes"})


async def test_collection_checks_items_against_its_schema(general: InProcessButler) -> None:
    schema = {
        "type": "object",
        "required": ["title"],
        "properties": {"title": {"type": "string"}, "rating": {"type": "integer", "maximum": 5}},
    }
    dune = {"title": "Dune", "rating": 5}
    async with general.session(request=asked()) as session:
        await session.call("collection_save", {"name": "Books", "schema": schema})
        created = await session.call("item_create", {"collection": "books", "data": dune})
        with pytest.raises(InvalidArguments, match="rating: 6 is greater"):
            await session.call("item_update", {"id": created["id"], "data": {"rating": 6}})
        with pytest.raises(InvalidArguments, match="'title' is a required"):
            await session.call("item_create", {"collection": "books", "data": {"rating": 1}})
        with pytest.raises(InvalidArguments, match="no JSON schema"):
            await session.call("collection_save", {"name": "x", "schema": {"type": 3}})
        changed = await session.call(
            "item_update", {"id": created["id"], "data": {"rating": None, "read": True}}
        )
        assert changed["data"] == {"title": "Dune", "read": True}
        found = await session.call("item_search", {"query": "dun", "fields": {"read": True}})
        assert [item["id"] for item in found["items"]] == [created["id"]]
        (listed,) = (await session.call("collection_list", {}))["collections"]
        assert (listed["name"], listed["items"], listed["schema"]) == ("books", 1, schema)
    async with general.session(request=asked()) as session:
        await session.call("collection_delete", {"name": "books"})
    async with general.session(request=asked()) as session:
        await session.call("undo", {})
        assert len((await session.call("item_search", {"collection": "books"}))["items"]) == 1


async def test_search_and_export_cover_notes_lists_and_collections(
    general: InProcessButler,
) -> None:
    async with general.session(request=asked()) as session:
        await session.call("note_add", {"text": "Passport in the drawer"})
        await session.call("list_add", {"items": ["renew passport"], "due": "3 June"})
        data = {"name": "Passport", "number": "=1+1"}
        await session.call("item_create", {"collection": "documents", "data": data})
        found = (await session.call("search", {"query": "passport"}))["found"]
        assert {(one["kind"], one["place"]) for one in found} == {
            ("note", None),
            ("list item", "to-do"),
            ("item", "documents"),
        }
        lists = await session.call("export", {"what": "lists", "name": "to-do"})
        (row,) = csv.DictReader(io.StringIO(lists["document"]))
        assert (row["title"], row["due_on"]) == ("renew passport", "2026-06-03")
        (row,) = csv.DictReader(
            io.StringIO((await session.call("export", {"what": "collections"}))["document"])
        )
        assert row["number"] == "'=1+1"
        notes = await session.call("export", {"what": "notes", "format": "json"})
        assert json.loads(notes["document"])[0]["text"] == "Passport in the drawer"


async def test_reminders_are_listed_canceled_and_brought_back(general: InProcessButler) -> None:
    async with general.session(request=asked(datetime.now(UTC))) as session:
        await session.call("remind", {"message": "call the bank", "in_minutes": 60})
        await session.call("remind", {"message": "call the doctor", "in_minutes": 70})
        with pytest.raises(InvalidArguments, match="fits several reminders"):
            await session.call("reminder_cancel", {"text": "call"})
    async with general.session(request=asked(datetime.now(UTC))) as session:
        await session.call("reminder_cancel", {"text": "Bank"})
        listed = await session.call("schedule_list", {"reminders_only": True})
        assert [one["message"] for one in listed["schedules"]] == ["call the doctor"]
    async with general.session(request=asked(datetime.now(UTC))) as session:
        undone = await session.call("undo", {})
        assert undone["text"] == "reminder “call the bank” brought back"
        listed = await session.call("schedule_list", {"reminders_only": True})
        assert len(listed["schedules"]) == 2


async def test_brief_names_due_items(general: InProcessButler) -> None:
    async with general.peer("switchboard") as peer:
        assert await peer.call("brief", {"part": "morning"}) == {"lines": []}
    async with general.owner() as owner:
        await owner.call("list_add", {"items": ["late"], "due": "yesterday"})
        await owner.call("list_add", {"items": ["now"], "due": "today"})
        await owner.call("list_add", {"items": ["soon"], "due": "tomorrow"})
    async with general.peer("switchboard") as peer:
        morning = (await peer.call("brief", {"part": "morning"}))["lines"]
        evening = (await peer.call("brief", {"part": "evening"}))["lines"]
    assert morning == ["late (due yesterday)", "now (due today)"]
    assert evening == [*morning, "soon (due tomorrow)"]


async def test_question_about_records_says_that_it_can_be_undone(general: InProcessButler) -> None:
    items = [f"thing {number}" for number in range(7)]
    async with general.session(request=asked()) as session:
        await session.call("list_add", {"items": items, "list": "shopping"})
        asks = await session.call("list_clear", {"list": "shopping", "done_only": False})
    assert asks["status"] == "pending_approval"
    async with general.owner() as owner:
        action = {"action_id": asks["action_id"]}
        assert (await owner.call("show_pending_action", action))["reversible"] is True
        await owner.call("approve_action", action)
        assert await general.count("list_items") == 0
        await owner.call("undo_action", action)
    assert await general.count("list_items") == 7
