"""Notes that sessions write in their butler's folder, which may be in the system prompt of later sessions.

A session that has read text of others may not change them: that text could steer every later session. Its
own words cannot be told from theirs, so the file is restored, what the session wrote is kept for the owner,
and the owner is asked whether to take it, or told if there are no approvals. What another session wrote
meanwhile, one that had read nothing of others, stays.
"""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid5

import structlog

from butlers.config.files import make_private_folder, replace_file
from butlers.domain.approval import AskReason, Question
from butlers.domain.provenance import Provenance, Trust
from butlers.domain.session import SessionRequest
from butlers.sessions.guard import LiveSession

log = structlog.get_logger()

FOLDER = "notes"
READABLE = 0o644

MAX_NOTES = 200_000  # characters that may be asked about
WRITE = "notes_write"  # the tool that an approval calls

TellOwner = Callable[[UUID, str], Awaitable[None]]
AskOwner = Callable[[Question], Awaitable[bool]]  # False: there are no approvals


@dataclass(frozen=True, slots=True)
class RestoredNotes:
    """Notes that were restored: the message to the owner, and the text that the session wrote."""

    message: str
    why: str
    written: str | None = None  # None: there is nothing to approve


@dataclass(frozen=True, slots=True)
class Notes:
    home: Path
    butler: str
    tell_owner: TellOwner
    ask_owner: AskOwner
    # For each running session: what trusted sessions that ended after its start left in a file.
    _kept: dict[UUID, dict[Path, bytes | None]] = field(default_factory=dict)

    @contextmanager
    def guarded(
        self, session: SessionRequest, live: LiveSession, files: tuple[Path, ...]
    ) -> Iterator[list[RestoredNotes]]:
        """Restore the files after the block if needed; the list then holds what to tell the owner."""
        before = {file: _read(file) for file in files}
        news: list[RestoredNotes] = []
        later = self._kept.setdefault(session.session_id, {})
        try:
            yield news
        finally:
            del self._kept[session.session_id]
            if why := _outside_text(session, live):
                for file, content in (before | later).items():
                    news += self._restored(session, file, content, why)
            else:
                self._keep({file: now for file in files if (now := _read(file)) != before[file]})

    def _keep(self, written: dict[Path, bytes | None]) -> None:
        for others in self._kept.values():
            others.update(written)

    async def tell(self, session: SessionRequest, news: list[RestoredNotes]) -> None:
        """Ask the owner whether to take the notes, or tell that they were restored."""
        try:
            untold = [one for one in news if not await self._ask(session, one)]
            if untold:
                text = "\n".join(one.message for one in untold)
                await self.tell_owner(uuid5(session.session_id, FOLDER), text)
        except Exception:
            log.exception("owner not told of notes", session=str(session.session_id))

    async def _ask(self, session: SessionRequest, restored: RestoredNotes) -> bool:
        if restored.written is None:
            return False
        sender = session.request.source_sender_identity if session.request else None
        return await self.ask_owner(
            Question(
                WRITE,
                {"text": restored.written},
                AskReason("change its notes", f"the session had read {restored.why}"),
                Provenance(Trust.OUTSIDE, sender, session.request_id, session.session_id),
                session.request,
                reversible=True,
            )
        )

    def _restored(
        self, session: SessionRequest, file: Path, content: bytes | None, why: str
    ) -> Iterator[RestoredNotes]:
        facts = {"session": str(session.session_id), "file": file.name, "read": why}
        text = None
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
            text = _as_text(written)
        message = (
            f"A session of {self.butler} that had read {why} changed {file.name}, which {what}."
        )
        yield RestoredNotes(message, why, text)


def _as_text(written: bytes | None) -> str | None:
    """Return what can be asked about: text, and not too much of it."""
    text = (written or b"").decode("utf-8", "replace").replace("\0", "")
    return text if text.strip() and len(text) <= MAX_NOTES else None


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
