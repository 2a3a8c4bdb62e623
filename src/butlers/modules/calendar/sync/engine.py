"""Synchronization of one CalDAV calendar: local changes are written first, then the server's are read.

A file is journaled before it is written, under a uid and a path that we chose, and every write names the
ETag that we have seen. So a write whose answer was lost is found again instead of repeated, and a change of
another device is merged instead of overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from butlers.db.database import Database
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import InvalidArguments
from butlers.domain.faults import kill_point
from butlers.modules.calendar.ical import Components, read_ical, write_ical
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync import store
from butlers.modules.calendar.sync.dav import (
    CalendarServerError,
    DavClient,
    EtagMismatch,
    RemoteChanges,
    RemoteFile,
    SyncTokenLost,
)
from butlers.modules.calendar.sync.merge import merge, same
from butlers.modules.calendar.sync.store import CalendarObject

MAX_TRIES = 10  # of one write, while another device changes the same event


@dataclass(frozen=True, slots=True)
class SyncReport:
    pushed: int
    pulled: int
    removed: int
    full: bool
    problems: tuple[str, ...] = ()


class CalendarSync:
    def __init__(
        self, database: Database, source: CalendarSource, client: DavClient, clock: Clock, zone: str
    ) -> None:
        self._database = database
        self._source = source
        self._client = client
        self._clock = clock
        self._zone = zone
        self._problems: list[str] = []

    async def run(self, *, full: bool = False) -> SyncReport:
        """Write what changed here, then read what changed on the server."""
        self._problems = []
        pushed = await self._push_all()
        found, whole = await self._remote_changes(full)
        changed, gone = await self._difference(found, whole)
        for file in await self._client.read(changed):
            await self._apply(file.href, file)
        for href in gone:
            await self._apply(href, None)
        report = SyncReport(pushed, len(changed), len(gone), whole, tuple(self._problems))
        async with self._database.transaction() as connection:
            error = "; ".join(self._problems[:5]) or None
            await store.save_cursor(
                connection,
                self._source.id,
                self._now(),
                token=found.token,
                full=whole,
                error=error,
            )
        return report

    # -- writing --------------------------------------------------------------------------------------

    async def _push_all(self) -> int:
        async with self._database.transaction() as connection:
            pending = await store.pending_pushes(connection, self._source.id)
        return sum([await self._try_push(uid) for uid in pending])

    async def _try_push(self, uid: str) -> bool:
        """Write one event. One that the server refuses stays to be written and holds up no other."""
        try:
            await self._push(uid)
        except CalendarServerError as error:
            self._problems.append(f"{uid}: {error.message}")
            return False
        return True

    async def _push(self, uid: str) -> None:
        """Write one event, merging what another device writes meanwhile."""
        for _ in range(MAX_TRIES):
            if (href := await self._unfinished(uid)) is not None:
                await self._reconcile(uid, href)
            journaled = await self._journal(uid)
            if journaled is None:
                return
            version, known, action = journaled
            kill_point("calendar.journaled")
            try:
                await self._write(uid, version, known, action)
            except EtagMismatch:
                await self._reconcile(uid, known.href)
                continue
            kill_point("calendar.recorded")
            return
        raise CalendarServerError(
            f"the event {uid} changes on the server faster than it can be written",
            hint="it is tried again at the next synchronization",
        )

    async def _unfinished(self, uid: str) -> str | None:
        """Return the path of a write that was begun and not recorded: it may have arrived."""
        async with self._database.transaction() as connection:
            known = await store.find_object(connection, self._source.id, uid)
        return known.href if known and known.writing else None

    async def _reconcile(self, uid: str, href: str) -> None:
        """Merge what the server has now under the path of an event."""
        files = await self._client.read([href])
        await self._merge(uid, href, files[0] if files else None)

    async def _journal(self, uid: str) -> tuple[int, CalendarObject, str] | None:
        """Store the file that will be written; return it with the version of the change, or None."""
        source_id = self._source.id
        async with self._database.transaction() as connection:
            version = (await store.pending_pushes(connection, source_id)).get(uid)
            if version is None:
                return None
            ours = await store.stored_components(connection, source_id, uid)
            known = await store.find_object(connection, source_id, uid)
            if not ours and (known is None or (known.etag is None and known.writing is None)):
                await store.finish_push(connection, source_id, uid, version)
                return None
            if not ours and known is not None:
                return version, known, "delete"
            text = write_ical(ours, known.data if known else None, str(uuid7()))
            href = known.href if known else self._client.href_of(uid)
            etag = known.etag if known else None
            planned = CalendarObject(href, etag, known.data if known else None, text)
            await store.save_object(connection, source_id, uid, planned)
            return version, planned, "update" if etag else "create"

    async def _write(self, uid: str, version: int, known: CalendarObject, action: str) -> None:
        source_id, data = self._source.id, known.writing or ""
        etag: str | None = None
        if action == "delete":
            if known.etag is None:  # its creation was begun, and may have arrived
                raise EtagMismatch
            await self._client.delete(known.href, known.etag)
        else:
            etag = await self._client.write(known.href, data, known.etag)
        kill_point("calendar.written")
        if action != "delete" and etag is None:
            files = await self._client.read([known.href])
            etag = files[0].etag if files else None
        async with self._database.transaction() as connection:
            if action == "delete":
                await store.delete_object(connection, source_id, uid)
            else:
                written = CalendarObject(known.href, etag, data, None)
                await store.save_object(connection, source_id, uid, written)
            await store.finish_push(connection, source_id, uid, version)
            await store.log_action(connection, source_id, uid, action)

    # -- reading --------------------------------------------------------------------------------------

    async def _remote_changes(self, full: bool) -> tuple[RemoteChanges, bool]:
        async with self._database.transaction() as connection:
            token = await store.read_cursor(connection, self._source.id)
        if token and not full:
            try:
                return await self._client.changes(token), False
            except SyncTokenLost:
                pass
        return await self._client.everything(), True

    async def _difference(self, found: RemoteChanges, whole: bool) -> tuple[list[str], list[str]]:
        """Return the paths to read and those that are gone."""
        async with self._database.transaction() as connection:
            known = await store.list_objects(connection, self._source.id)
        etags = {href: etag for href, (_, etag) in known.items()}
        changed = [href for href, etag in found.changed.items() if etags.get(href) != etag]
        listed_gone = [href for href in found.gone if href in known]
        missing = [href for href, etag in etags.items() if etag and href not in found.changed]
        return changed, missing if whole else listed_gone

    async def _apply(self, href: str, file: RemoteFile | None) -> None:
        """Take over what the server has under a path; None: it has nothing any more."""
        uid = await self._uid_of(href, file)
        if uid is None:
            return
        async with self._database.transaction() as connection:
            await store.stored_components(connection, self._source.id, uid)  # locks the event
            pending = await store.is_pending(connection, self._source.id, uid)
            if not pending:
                await store.begin_sync(connection)
                theirs = self._components(file, uid) if file else {}
                if file is not None and not theirs:
                    return
                await store.replace_components(connection, self._source, uid, theirs)
                if file is None:
                    await store.delete_object(connection, self._source.id, uid)
                else:
                    seen = CalendarObject(href, file.etag, file.data)
                    await store.save_object(connection, self._source.id, uid, seen)
        if pending:
            await self._merge(uid, href, file)

    async def _merge(self, uid: str, href: str, file: RemoteFile | None) -> None:
        """Merge the server's file with the changes here; what differs from it stays to be written."""
        source_id = self._source.id
        async with self._database.transaction() as connection:
            await store.begin_sync(connection)
            known = await store.find_object(connection, source_id, uid)
            ours = await store.stored_components(connection, source_id, uid)
            theirs = self._components(file, uid) if file else {}
            merged, lost = merge(self._base(known, file, uid), ours, theirs)
            await store.replace_components(connection, self._source, uid, merged)
            if file is None:
                await store.delete_object(connection, source_id, uid)
            else:
                seen = CalendarObject(href, file.etag, file.data)
                await store.save_object(connection, source_id, uid, seen)
            if _equal(merged, theirs):
                await store.finish_push(connection, source_id, uid)
            kept = f"the server's {', '.join(lost)} was kept" if lost else None
            await store.log_action(connection, source_id, uid, "merge", kept)

    def _base(self, known: CalendarObject | None, file: RemoteFile | None, uid: str) -> Components:
        """Return the last common state: our own write if the server's file came from it."""
        if known is None:
            return {}
        if known.writing and file is not None:
            begun = read_ical(known.writing, self._source.id, self._zone)
            found = read_ical(file.data, self._source.id, self._zone)
            if begun.write_id == found.write_id:
                return begun.events.get(uid, {})
        return self._read(known.data, uid) if known.data else {}

    async def _uid_of(self, href: str, file: RemoteFile | None) -> str | None:
        if file is None:
            async with self._database.transaction() as connection:
                known = await store.list_objects(connection, self._source.id)
            return known[href][0] if href in known else None
        try:
            found = read_ical(file.data, self._source.id, self._zone)
        except InvalidArguments as error:
            self._problems.append(f"{href}: {error.message}")
            return None
        self._problems += found.problems
        return next(iter(found.events), None)

    def _components(self, file: RemoteFile, uid: str) -> Components:
        return self._read(file.data, uid)

    def _read(self, data: str, uid: str) -> Components:
        return read_ical(data, self._source.id, self._zone).events.get(uid, {})

    def _now(self) -> datetime:
        return self._clock.now()


def _equal(first: Components, second: Components) -> bool:
    return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
