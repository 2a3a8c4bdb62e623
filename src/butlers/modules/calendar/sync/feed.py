"""Calendar feeds: iCalendar files at an address, only read."""

from __future__ import annotations

from datetime import datetime

import httpx

from butlers.db.database import Database
from butlers.domain.errors import ChannelUnavailable
from butlers.modules.calendar.ical import MAX_BYTES, read_ical
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync import store
from butlers.modules.calendar.sync.dav import TIMEOUT_S, CalendarServerError
from butlers.modules.calendar.sync.engine import SyncReport


async def fetch_feed(url: str, etag: str | None = None) -> tuple[str | None, str | None]:
    """Return text and ETag of a feed; no text if it is unchanged since the ETag."""
    address = f"https://{url.removeprefix('webcal://')}" if url.startswith("webcal://") else url
    headers = {"If-None-Match": etag} if etag else {}
    received = bytearray()
    try:
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, follow_redirects=True) as http,
            http.stream("GET", address, headers=headers) as answer,
        ):
            if answer.status_code == 304:
                return None, etag
            if not answer.is_success:
                raise CalendarServerError(
                    f"the calendar feed answered {answer.status_code}", hint="check its address"
                )
            async for part in answer.aiter_bytes():
                received += part
                if len(received) > MAX_BYTES:
                    raise CalendarServerError("the calendar feed is too large")
    except httpx.HTTPError as error:
        raise ChannelUnavailable(f"the calendar feed cannot be reached: {error!r}") from error
    return received.decode(errors="replace"), answer.headers.get("ETag")


async def sync_feed(
    database: Database, source: CalendarSource, url: str, zone: str, now: datetime
) -> SyncReport:
    """Make the stored events of a feed equal to the feed."""
    async with database.transaction() as connection:
        etag = await store.read_cursor(connection, source.id)
    text, new_etag = await fetch_feed(url, etag)
    pulled = removed = 0
    problems: tuple[str, ...] = ()
    async with database.transaction() as connection:
        if text is not None:
            file = read_ical(text, source.id, zone)
            problems = tuple(file.problems)
            await store.begin_sync(connection)
            gone = await store.stored_uids(connection, source.id) - set(file.events)
            for uid in gone:
                await store.replace_components(connection, source, uid, {})
            for uid, components in file.events.items():
                await store.replace_components(connection, source, uid, components)
            pulled, removed = len(file.events), len(gone)
        error = "; ".join(problems[:5]) or None
        await store.save_cursor(
            connection, source.id, now, token=new_etag, full=text is not None, error=error
        )
    return SyncReport(0, pulled, removed, text is not None, problems)
