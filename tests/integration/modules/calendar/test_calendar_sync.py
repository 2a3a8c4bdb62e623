"""CalDAV against a real server: both directions, merges, lost answers and lost sync tokens."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import caldav
import pytest
from hypothesis import settings

from butlers.domain.errors import CredentialRefused
from butlers.modules.calendar.sync import engine
from butlers.modules.calendar.sync.dav import CalendarServerError, DavClient
from support.in_process import MakeButler
from support.properties import DEEP_EXAMPLES
from support.radicale import PASSWORD, USER
from support.radicale_calendar import RadicaleCalendar
from support.waiting import until

from .conftest import ConnectedGeneral

START = datetime(2026, 5, 5, 10, 30, tzinfo=UTC)  # 12:30 in Berlin


class ProcessKilled(Exception):
    """The process is killed at this point, as far as the database can tell."""


async def create(connected: ConnectedGeneral, title: str = "lunch", **more: Any) -> str:
    made = await connected.general.call(
        "calendar_create_event",
        title=title,
        start_at="tuesday 12:30",
        calendar_id="home",
        conflict_policy="allow_overlap",
        **more,
    )
    return str(made["id"])


def remote(connected: ConnectedGeneral) -> caldav.Event:
    (event,) = connected.server.second_client().events()
    return event


def edit(event: caldav.Event, **fields: str) -> None:
    with event.edit_icalendar_component() as component:
        for name, value in fields.items():
            component.pop(name, None)
            component.add(name, value)
    event.save()


async def rows(connected: ConnectedGeneral) -> list[dict[str, Any]]:
    return await connected.general.rows(
        "SELECT title, description, location FROM calendar_events ORDER BY title, id"
    )


async def test_events_travel_both_ways_with_series_and_changed_occurrences(
    connected: ConnectedGeneral,
) -> None:
    event = await create(connected, recurrence_rule="weekly")
    base = event.partition("@")[0]
    await connected.general.call(
        "calendar_update_event", event=f"{base}@20260512T123000", start_at="13:00"
    )
    assert (await connected.sync()).pushed == 1
    text = remote(connected).data
    assert text.count("BEGIN:VEVENT") == 2
    assert "RRULE:FREQ=WEEKLY" in text
    assert "RECURRENCE-ID;TZID=Europe/Berlin:20260512T123000" in text
    connected.server.second_client().save_event(
        dtstart=START + timedelta(hours=3), dtend=START + timedelta(hours=4), summary="tea"
    )
    report = await connected.sync()
    assert (report.pulled, report.full) == (1, False)
    listed = await connected.general.call("calendar_list_events", when="tomorrow")
    assert [(one["title"], one["when"]) for one in listed["events"]] == [
        ("lunch", "tomorrow 12:30–13:30"),
        ("tea", "tomorrow 15:30–16:30"),
    ]
    assert listed["events"][1]["source"] == {"sender": "calendar home", "trust": "outside"}
    for one in connected.server.second_client().events():
        if "tea" in one.data:
            one.delete()
    await connected.sync()
    assert len(await rows(connected)) == 2
    await connected.general.call("calendar_delete_event", event=base, scope="all")
    await connected.sync()
    assert connected.server.texts() == []


async def test_undo_reaches_the_server_and_never_undoes_a_synchronization(
    connected: ConnectedGeneral,
) -> None:
    await create(connected)
    await connected.sync()
    connected.server.second_client().save_event(
        dtstart=START + timedelta(days=1), dtend=START + timedelta(days=1, hours=1), summary="tea"
    )
    await connected.sync()
    assert await connected.general.undo() == "lunch removed"
    await connected.sync()
    (text,) = connected.server.texts()
    assert "tea" in text


async def test_changes_of_both_sides_are_merged(connected: ConnectedGeneral) -> None:
    await create(connected)
    await connected.sync()
    edit(remote(connected), location="Café", **{"x-other": "kept"})
    await connected.general.call("calendar_update_event", event="it", title="late lunch")
    await connected.sync()
    (row,) = await rows(connected)
    assert (row["title"], row["location"]) == ("late lunch", "Café")
    text = remote(connected).data
    assert "SUMMARY:late lunch" in text
    assert "LOCATION:Café" in text
    assert "X-OTHER:kept" in text
    edit(remote(connected), summary="theirs")
    await connected.general.call("calendar_update_event", event="lunch", title="ours")
    await connected.sync()
    assert [row["title"] for row in await rows(connected)] == ["theirs"]
    logged = await connected.general.rows(
        "SELECT detail FROM calendar_action_log WHERE detail IS NOT NULL"
    )
    assert logged == [{"detail": "the server's title was kept"}]


async def test_change_beats_a_deletion_of_the_other_side(connected: ConnectedGeneral) -> None:
    await create(connected)
    await connected.sync()
    remote(connected).delete()
    await connected.general.call("calendar_update_event", event="it", title="still on")
    await connected.sync()
    assert "still on" in remote(connected).data
    edit(remote(connected), location="Café")
    await connected.general.call("calendar_delete_event", event="still on")
    await connected.sync()
    assert "Café" in remote(connected).data
    assert len(await rows(connected)) == 1


@pytest.mark.parametrize("point", ["calendar.journaled", "calendar.written"])
async def test_write_whose_answer_is_lost_is_neither_doubled_nor_lost(
    connected: ConnectedGeneral, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each kill the event changes again, here or there, and nothing of it is lost."""

    def kill(name: str) -> None:
        if name == point:
            raise ProcessKilled

    async def killed() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(engine, "kill_point", kill)
            with pytest.raises(ProcessKilled):
                await connected.sync()

    await create(connected)
    await killed()
    await connected.general.call("calendar_update_event", event="it", location="Bar")
    await connected.sync()
    text = remote(connected).data
    assert "LOCATION:Bar" in text
    await connected.general.call("calendar_update_event", event="it", title="late lunch")
    await killed()
    edit(remote(connected), description="from the phone")
    await connected.general.call("calendar_update_event", event="it", title="later lunch")
    await connected.sync()
    text = remote(connected).data
    assert "SUMMARY:later lunch" in text
    assert "DESCRIPTION:from the phone" in text
    await connected.general.call("calendar_delete_event", event="it")
    await killed()
    await connected.sync()
    assert connected.server.texts() == []
    assert await rows(connected) == []
    assert await connected.general.rows("SELECT * FROM calendar_pushes") == []


async def test_event_deleted_after_a_lost_creation_is_gone_everywhere(
    connected: ConnectedGeneral, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(name: str) -> None:
        if name == "calendar.written":
            raise ProcessKilled

    await create(connected)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "kill_point", kill)
        with pytest.raises(ProcessKilled):
            await connected.sync()
    await connected.general.call("calendar_delete_event", event="it")
    await connected.sync()
    assert connected.server.texts() == []
    assert await rows(connected) == []


async def test_lost_sync_token_leads_to_a_full_sync_without_duplicates(
    connected: ConnectedGeneral,
) -> None:
    await create(connected)
    calendar = connected.server.second_client()
    for number in range(5):
        at = START + timedelta(days=number)
        calendar.save_event(dtstart=at, dtend=at + timedelta(hours=1), summary=f"event {number}")
    await connected.sync()
    assert (await connected.sync()).full is False
    connected.server.lose_sync_tokens()
    edit(next(one for one in calendar.events() if "event 3" in one.data), location="Café")
    next(one for one in calendar.events() if "event 4" in one.data).delete()
    report = await connected.sync()
    assert (report.full, report.pulled, report.removed) == (True, 1, 1)
    assert [row["title"] for row in await rows(connected)] == [
        "event 0", "event 1", "event 2", "event 3", "lunch",
    ]  # fmt: skip


async def test_no_update_is_lost_in_random_interleavings(connected: ConnectedGeneral) -> None:
    """Two devices add words to different fields of the same event; every word arrives on both sides."""
    chance = Random(20)
    steps = 300 if settings().max_examples >= DEEP_EXAMPLES else 25
    await create(connected)
    await connected.sync()
    ours: list[str] = []
    theirs: list[str] = []
    for number in range(steps):
        action = chance.choice(("ours", "theirs", "sync", "both"))
        if action in ("ours", "both"):
            ours.append(f"o{number}")
            await connected.general.call(
                "calendar_update_event", event="it", location=" ".join(ours)
            )
        if action in ("theirs", "both"):
            theirs.append(f"t{number}")
            edit(remote(connected), description=" ".join(theirs))
        if action == "sync":
            await connected.sync(full=chance.random() < 0.2)
    await connected.sync()
    (row,) = await rows(connected)
    component = remote(connected).icalendar_component
    assert (row["location"] or "").split() == ours
    assert (row["description"] or "").split() == theirs
    assert str(component.get("location", "")).split() == ours
    assert str(component.get("description", "")).split() == theirs


async def test_event_that_the_server_refuses_holds_up_no_other(
    connected: ConnectedGeneral, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(connected, title="refused")
    await create(connected, title="lunch")
    connected.server.second_client().save_event(
        dtstart=START + timedelta(days=1), dtend=START + timedelta(days=1, hours=1), summary="tea"
    )
    write = DavClient.write

    async def refuse_one(client: DavClient, href: str, data: str, etag: str | None) -> str | None:
        if "SUMMARY:refused" in data:
            raise CalendarServerError("the calendar server answered 400 to PUT")
        return await write(client, href, data, etag)

    with monkeypatch.context() as patched:
        patched.setattr(DavClient, "write", refuse_one)
        report = await connected.sync()
    assert (report.pushed, report.pulled) == (1, 1)
    assert [problem.partition(": ")[2] for problem in report.problems] == [
        "the calendar server answered 400 to PUT"
    ]
    assert [row["title"] for row in await rows(connected)] == ["lunch", "refused", "tea"]
    assert (await connected.sync()).problems == ()
    assert sum("SUMMARY:refused" in text for text in connected.server.texts()) == 1


async def test_wrong_password_is_told_as_such(radicale: RadicaleCalendar) -> None:
    async with DavClient(radicale.url, USER, "wrong") as client:
        with pytest.raises(CredentialRefused) as error:
            await client.everything()
    assert error.value.hint
    async with DavClient(radicale.root, USER, PASSWORD) as client:
        found = await client.find_calendars()
    assert [one.url for one in found] == [radicale.url]


async def test_configured_account_is_synchronized_by_the_butler_itself(
    make_butler: MakeButler, radicale: RadicaleCalendar
) -> None:
    radicale.second_client().save_event(
        dtstart=START, dtend=START + timedelta(hours=1), summary="from the phone"
    )
    made = make_butler("general")
    file = made.directory / "butler.toml"
    file.write_text(
        file.read_text()
        + '\n[modules.calendar.accounts.home]\nkind = "caldav"\nsecret = "CALDAV_HOME"\n'
        f'url = "{radicale.url}"\nusername = "{USER}"\n'
    )
    await made.secret("CALDAV_HOME", PASSWORD)
    await made.start()

    async def copied() -> list[dict[str, Any]]:
        return await made.rows("SELECT id FROM calendar_events WHERE title = 'from the phone'")

    await until("the server's event", copied)
    async with made.owner() as owner:
        await owner.call(
            "calendar_create_event",
            {"title": "from here", "start_at": "2026-06-02 09:00", "calendar_id": "home"},
        )

    async def written() -> bool:
        return any("from here" in text for text in radicale.texts())

    await until("our event", written)


async def test_refused_password_is_told_to_the_owner_once(
    make_butler: MakeButler, radicale: RadicaleCalendar
) -> None:
    made = make_butler("general")
    file = made.directory / "butler.toml"
    file.write_text(
        file.read_text()
        + '\n[modules.calendar.accounts.home]\nkind = "caldav"\nsecret = "CALDAV_HOME"\n'
        f'url = "{radicale.url}"\nusername = "{USER}"\n'
    )
    await made.secret("CALDAV_HOME", "revoked")
    await made.start()

    async def finished(number: int) -> bool:
        done = await made.rows(
            "SELECT id FROM queue_items WHERE queue = 'calendar_sync' AND state = 'done'"
        )
        return len(done) >= number

    await until("the first synchronization", lambda: finished(1))
    async with made.owner() as owner:
        await owner.call("calendar_force_sync", {})
    await until("the second synchronization", lambda: finished(2))
    told = [
        json.loads(row["payload"])["message"]
        for row in await made.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
    ]
    assert told == [
        "Your calendar home fails: the calendar server refused the login (401)."
        " run butlers connect caldav again."
    ]
