"""The notes that sessions write in their butler's folder, which the system prompt of later ones may hold.

A session that has read what others may have written leaves none: theirs would be the words that lead each
session after it. Which of its words are its own nobody can tell, so the file is put back as it was, what was
written is kept for the owner, and the owner is told.
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
        """What the owner is to be told is in the list once the session is over, however it ended."""
        before = {file: _read(file) for file in files}
        news: list[str] = []
        try:
            yield news
        finally:
            if why := _strangers(session, live):
                for file, content in before.items():
                    news += self._put_back(session, file, content, why)

    async def tell(self, session: SessionRequest, news: list[str]) -> None:
        try:
            await self.tell_owner(uuid5(session.session_id, FOLDER), "\n".join(news))
        except Exception:
            log.exception("owner not told of notes", session=str(session.session_id))

    def _put_back(
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
            log.exception("notes not put back", **facts)
            what = f"could not be put back ({error.strerror or error}): look at it before its next session"
        else:
            log.warning("notes put back", kept=str(kept), **facts)
            what = f"was put back as it was. What was written is in {kept}"
        yield f"A session of {self.butler} that has read {why} changed {file.name}, which {what}."


def _strangers(session: SessionRequest, live: LiveSession) -> str:
    """By what it has read words that are not the owner's; empty where it has not."""
    if session.request is not None and not session.request.is_owners:
        return "somebody else's message"
    read = ", ".join(sorted(live.outside))
    return f"what others may have written ({read})" if read else ""


def _read(file: Path) -> bytes | None:
    """Nothing of a link: no session is granted what it leads to."""
    return file.read_bytes() if file.is_file() and not file.is_symlink() else None


def _restore(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    else:
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else READABLE
        replace_file(file, content, mode)
