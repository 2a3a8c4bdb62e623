"""Calendar files: import, invitations of organizers and others, feeds, and what waits for approval."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from butlers.domain.errors import InvalidArguments, NotAllowed
from butlers.modules.calendar import store
from butlers.modules.calendar.config import CalendarAccount
from butlers.modules.calendar.sync.feed import sync_feed
from butlers.modules.calendar.sync.worker import declare_accounts
from support.in_process import MakeButler
from support.roster_butler import NOON, RosterButler, start_roster_butler

ANNA = "anna@example.org"


def file(*lines: str, method: str = "") -> str:
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", *([f"METHOD:{method}"] if method else [])]
    return "\r\n".join([*head, *lines, "END:VCALENDAR", ""])


def event(uid: str, title: str, *lines: str, start: str = "20260505T100000Z") -> list[str]:
    return [
        "BEGIN:VEVENT",
        f"UID:{uid}",
        f"DTSTART:{start}",
        f"SUMMARY:{title}",
        *lines,
        "END:VEVENT",
    ]


def invitation(title: str, *lines: str, method: str = "REQUEST", organizer: str = ANNA) -> str:
    people = (f"ORGANIZER:mailto:{organizer}", "ATTENDEE:mailto:me@example.org")
    return file(*event("party", title, *people, *lines), method=method)


@pytest.fixture
async def general(make_butler: MakeButler) -> RosterButler:
    return await start_roster_butler(make_butler, "general")


async def titles(general: RosterButler, when: str = "tomorrow") -> list[str]:
    listed = await general.call("calendar_list_events", when=when)
    return [one["title"] for one in listed["events"]]


async def test_file_is_imported_once_with_what_can_be_read_and_undone(
    general: RosterButler,
) -> None:
    series = [
        "BEGIN:VEVENT", "UID:s", "DTSTART;TZID=W. Europe Standard Time:20260505T090000",
        "DTEND;TZID=W. Europe Standard Time:20260505T100000", "RRULE:FREQ=WEEKLY;BYDAY=TU",
        "EXDATE;TZID=W. Europe Standard Time:20260512T090000", "SUMMARY:standup", "END:VEVENT",
        "BEGIN:VEVENT", "UID:s", "RECURRENCE-ID;TZID=W. Europe Standard Time:20260519T090000",
        "DTSTART;TZID=W. Europe Standard Time:20260519T110000", "SUMMARY:late standup", "END:VEVENT",
    ]  # fmt: skip
    text = file(
        *series,
        *event("forever", "forever", "RRULE:FREQ=SECONDLY"),
        *event("mars", "mars", start="20260505T080000"),
        "BEGIN:VEVENT", "UID:bad", "DTSTART:yesterday", "SUMMARY:bad", "END:VEVENT",
    )  # fmt: skip
    for _ in range(2):
        answer = await general.call("calendar_import", ics=text)
        assert answer["events"] == 3
        assert len(answer["problems"]) == 2
    assert sorted(await titles(general)) == ["forever", "mars", "standup"]
    assert await titles(general, "12 may") == []
    assert await titles(general, "19 may") == ["late standup"]
    await general.undo()  # the second import changed nothing
    assert await titles(general) == []
    with pytest.raises(InvalidArguments, match="no calendar file"):
        await general.call("calendar_import", ics="hello")


async def test_invitation_is_answered_updated_and_canceled_by_its_organizer(
    general: RosterButler,
) -> None:
    async with general.session(sender=ANNA) as session:
        made = await session.call("calendar_invitation", {"ics": invitation("party")})
        assert made["status"] == "tentative"
        assert made["organizer"] == ANNA
    answered = await general.call("calendar_invitation", ics=invitation("party"), answer="accept")
    assert answered["text"].startswith("Updated: party")
    async with general.session(sender=ANNA) as session:
        await session.call("calendar_invitation", {"ics": invitation("big party", "SEQUENCE:1")})
    assert await titles(general) == ["big party"]
    with pytest.raises(InvalidArguments, match="older than the stored"):
        await general.call("calendar_invitation", ics=invitation("party"))
    async with general.session(sender=ANNA) as session:
        gone = await session.call(
            "calendar_invitation", {"ics": invitation("x", "SEQUENCE:2", method="CANCEL")}
        )
    assert gone["text"] == "Canceled by the organizer: big party."
    assert await titles(general) == []


async def test_only_the_organizer_changes_an_event(general: RosterButler) -> None:
    async with general.session(sender=ANNA) as session:
        await session.call("calendar_invitation", {"ics": invitation("party")})
    forged = invitation("x", "SEQUENCE:9", method="CANCEL")
    async with general.session(sender="mallory@example.org") as session:
        with pytest.raises(NotAllowed, match="not the organizer"):
            await session.call("calendar_invitation", {"ics": forged})
        own = invitation("x", "SEQUENCE:9", method="CANCEL", organizer="mallory@example.org")
        with pytest.raises(NotAllowed, match="only the organizer"):
            await session.call("calendar_invitation", {"ics": own})
    assert await titles(general) == ["party"]


class Feed(BaseHTTPRequestHandler):
    text: ClassVar[str] = ""

    def do_GET(self) -> None:
        etag = f'"{hash(self.text)}"'
        unchanged = self.headers.get("If-None-Match") == etag
        self.send_response(304 if unchanged else 200)
        self.send_header("ETag", etag)
        self.end_headers()
        if not unchanged:
            self.wfile.write(self.text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def feed() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Feed)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/feed.ics"
    server.shutdown()
    server.server_close()


async def test_feed_is_read_and_followed_but_never_written(
    general: RosterButler, feed: str
) -> None:
    database = general.butler.butler.database
    account = CalendarAccount(kind="ics", url=feed)
    interval = next(
        m.config for m in general.butler.butler.modules if m.name == "calendar"
    ).interval
    await declare_accounts(database, {"holidays": account}, NOON, interval)
    async with database.transaction() as connection:
        source = await store.find_source(connection, "holidays")
    Feed.text = file(*event("a", "first"), *event("b", "second"))
    first = await sync_feed(database, source, feed, "Europe/Berlin", NOON)
    assert (first.pulled, await titles(general)) == (2, ["first", "second"])
    again = await sync_feed(database, source, feed, "Europe/Berlin", NOON)
    assert (again.pulled, again.full) == (0, False)
    Feed.text = file(*event("b", "changed"), *event("c", "third"))
    changed = await sync_feed(database, source, feed, "Europe/Berlin", NOON)
    assert (changed.removed, await titles(general)) == (1, ["changed", "third"])
    with pytest.raises(NotAllowed, match="can only be read"):
        await general.call("calendar_delete_event", event="third")
    states = (await general.call("calendar_sync_status"))["calendars"]
    assert [(one["name"], one["events"], one["error"]) for one in states] == [
        ("holidays", 2, None),
        ("local", 0, None),
    ]


async def test_shared_calendar_and_invitations_wait_for_the_owner(general: RosterButler) -> None:
    await general.rows(
        "INSERT INTO calendar_sources (name, kind, shared) VALUES ('team', 'caldav', true),"
        " ('home', 'caldav', false)"
    )
    arguments = {"title": "offsite", "start_at": "tuesday 9:00", "calendar_id": "team"}
    asked = await general.call("calendar_create_event", **arguments)
    assert asked["status"] == "pending_approval"
    alone = await general.call(
        "calendar_create_event", title="gym", start_at="tuesday 7:00", calendar_id="home"
    )
    assert alone["text"].startswith("Added")
    inviting = await general.call("calendar_add_attendees", event="gym", attendees=[ANNA])
    assert inviting["status"] == "pending_approval"
    assert await titles(general) == ["gym"]
    async with general.butler.owner() as owner:
        await owner.call("approve_action", {"action_id": inviting["action_id"]})
        told = await owner.call("calendar_get_event", {"event": alone["id"]})
    assert told["attendees"] == [{"email": ANNA, "status": "needs-action"}]
    local = await general.call(
        "calendar_create_event", title="x", start_at="8 may 9:00", attendees=[ANNA]
    )
    assert local["text"].startswith("Added"), "nobody is invited by the local calendar"
