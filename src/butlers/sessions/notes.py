"""Notes that sessions write in their butler's folder, which may be in the system prompt of later sessions.

A session that has read text of others may not change them: that text could steer every later session. Its
own words cannot be told from theirs, so the file is restored, what the session wrote is kept for the owner,
and the owner is told.
"""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

import structlog

from butlers.config.files import make_private_folder, replace_file
from butlers.domain.session import SessionRequest
from butlers.sessions.guard import LiveSession

log = structlog.get_logger()

FOLDER = "notes"
READABLE = 0o644

TellOwner = Callable[[UUID, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Notes:
    home: Path
    butler: str
    tell_owner: TellOwner

    @contextmanager
    def guarded(
        self, session: SessionRequest, live: LiveSession, files: tuple[Path, ...]
    ) -> Iterator[list[str]]:
        """Restore the files after the block if needed; the list then holds what to tell the owner."""
        before = {file: _read(file) for file in files}
        news: list[str] = []
        try:
            yield news
        finally:
            if why := _outside_text(session, live):
                for file, content in before.items():
                    news += self._restored(session, file, content, why)

    async def tell(self, session: SessionRequest, news: list[str]) -> None:
        try:
            await self.tell_owner(uuid5(session.session_id, FOLDER), "\n".join(news))
        except Exception:
            log.exception("owner not told of notes", session=str(session.session_id))

    def _restored(
        self, session: SessionRequest, file: Path, content: bytes | None, why: str
    ) -> Iterator[str]:
        facts = {"session": str(session.session_id), "file": file.name, "read": why}
        kept = self.home / FOLDER / self.butler / f"{session.session_id}-{file.name}"
        try:
            written = _read(file)
            if written == content:
                return
            if written is not None:
                make_private_folder(kept.parent)
                replace_file(kept, written)
            _restore(file, content)
        except OSError as error:
            log.exception("notes not restored", **facts)
            what = f"could not be restored ({error.strerror or error}): check it before the next session"
        else:
            log.warning("notes restored", kept=str(kept), **facts)
            what = f"was restored. What the session wrote is in {kept}"
        yield f"A session of {self.butler} that had read {why} changed {file.name}, which {what}."


def _outside_text(session: SessionRequest, live: LiveSession) -> str:
    """Return which text of others the session has read; empty if none."""
    if session.request is not None and not session.request.is_owners:
        return "a message of another person"
    read = ", ".join(sorted(live.outside))
    return f"what others may have written ({read})" if read else ""


def _read(file: Path) -> bytes | None:
    """Return the content; None for a link, because no session is granted its target."""
    return file.read_bytes() if file.is_file() and not file.is_symlink() else None


def _restore(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    else:
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else READABLE
        replace_file(file, content, mode)
