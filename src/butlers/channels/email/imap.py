"""One IMAP connection, used from a thread: folders, search, fetch, IDLE and append."""

from __future__ import annotations

import asyncio
import imaplib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from imap_tools import (
    BaseMailBox,
    ImapToolsError,
    MailBox,
    MailboxLoginError,
    MailBoxStartTls,
    MailBoxUnencrypted,
)

from butlers.channels.email.config import MailAccount
from butlers.channels.email.oauth import MailLogin
from butlers.domain.errors import ChannelUnavailable, CredentialRefused

T = TypeVar("T")

TIMEOUT_S = 30.0
MAX_BATCH_BYTES = 8 * 2**20  # fetched at once, unless one mail alone is larger
_LOGIN_LATER = ("[unavailable]", "[inuse]", "[limit]", "too many")


@dataclass(frozen=True, slots=True)
class FolderState:
    validity: int
    next_uid: int


@dataclass(frozen=True, slots=True)
class ImapMail:
    uid: int
    size: int
    received_at: datetime
    source: bytes
    too_large: bool = False


class ImapConnection:
    """Blocking calls run in a thread, one at a time. A cancelled call closes the connection."""

    def __init__(self, account: MailAccount, login: MailLogin) -> None:
        self._account = account
        self._login = login
        self._box: BaseMailBox | None = None
        self._folder: str | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work of this connection. Its errors become ChannelError."""
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            self.abort()
            raise
        except MailboxLoginError as error:
            self.abort()
            raise _login_error(self._account, error) from None
        except (ImapToolsError, imaplib.IMAP4.error, OSError, ValueError) as error:
            self.abort()
            raise ChannelUnavailable(
                f"{self._account.imap_host} failed ({type(error).__name__}: {str(error)[:200]})"
            ) from None

    def abort(self) -> None:
        """Close the connection at once. A thread that waits on it ends with an error."""
        box, self._box, self._folder = self._box, None, None
        if box is not None:
            with suppress(OSError):
                box.client.sock.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                box.client.sock.close()

    # -- blocking, called through run() ----------------------------------------------------------

    @property
    def box(self) -> BaseMailBox:
        if self._box is None:
            self._box = _connect(self._account, self._login)
        return self._box

    def open_folder(self, folder: str) -> FolderState:
        """Open a folder for reading and return its state."""
        self.box.folder.set(folder, readonly=True)
        self._folder = folder
        told: Any = self.box.client.untagged_responses  # with the answer to SELECT
        validity, next_uid = (told.get(name, [None])[0] for name in ("UIDVALIDITY", "UIDNEXT"))
        if validity is None or next_uid is None:
            raise ValueError("the server numbers no mail")
        return FolderState(int(validity), int(next_uid))

    def search(self, first: int, last: int | None = None, since: date | None = None) -> list[int]:
        """Return the UIDs in a range of the open folder, in order."""
        criteria = f"UID {first}:{last if last is not None else '*'}"
        if since is not None:
            criteria += f" SINCE {since.day:02}-{_MONTHS[since.month - 1]}-{since.year}"
        found = sorted(int(uid) for uid in self.box.uids(criteria))
        return [uid for uid in found if first <= uid and (last is None or uid <= last)]

    def fetch(self, uids: Sequence[int], max_bytes: int) -> list[ImapMail]:
        """Fetch the first of these mails, as many as fit into one batch; of too large ones the headers."""
        sizes = self._sizes(uids)
        chosen: list[int] = []
        used = 0
        for uid in sorted(sizes):
            small = min(sizes[uid][0], max_bytes)
            if chosen and used + small > MAX_BATCH_BYTES:
                break
            chosen.append(uid)
            used += small
        whole = [uid for uid in chosen if sizes[uid][0] <= max_bytes]
        large = [uid for uid in chosen if sizes[uid][0] > max_bytes]
        sources = {
            **self._sources(whole, "BODY.PEEK[]"),
            **self._sources(large, "BODY.PEEK[HEADER]"),
        }
        return [
            ImapMail(uid, *sizes[uid], sources[uid], too_large=uid in large)
            for uid in chosen
            if uid in sources  # it may have been moved meanwhile
        ]

    def headers(self, uids: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return the header section of mails of the open folder, in the given order."""
        found = self._sources(uids, "BODY.PEEK[HEADER]")
        return [(uid, found[uid]) for uid in uids if uid in found]

    def total_size(self, uids: Sequence[int]) -> int:
        """Return the bytes of these mails of the open folder."""
        parts = [uids[start : start + 1000] for start in range(0, len(uids), 1000)]
        return sum(size for part in parts for size, _ in self._sizes(part).values())

    def idle(self, seconds: float) -> bool:
        """Wait for a change of the open folder. Returns False if the server does not know IDLE."""
        if "IDLE" not in self.box.client.capabilities:
            return False
        idle: Any = self.box.idle
        idle.start()
        try:
            if not self._was_told():
                idle.poll(timeout=seconds)
        finally:
            idle.stop()
        return True

    def _was_told(self) -> bool:
        """Return whether the server has reported a change that waiting on the socket would miss.

        Such a report came with the answer to a command before (the first EXISTS is that of SELECT), or with
        the answer to IDLE, so that it is in the buffer.
        """
        client: Any = self.box.client
        if len(client.untagged_responses.get("EXISTS", ())) > 1:
            return True
        client.sock.settimeout(0)
        try:
            stream = vars(client).get("_file") or client.file  # by version of Python
            return bool(stream.peek(1))
        finally:
            client.sock.settimeout(TIMEOUT_S)

    def append(self, source: bytes, folder: str, flag: str) -> None:
        self.box.append(source, folder, dt=datetime.now(UTC), flag_set=[flag])

    def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            with suppress(ImapToolsError, imaplib.IMAP4.error, OSError):
                box.logout()

    def _sizes(self, uids: Sequence[int]) -> dict[int, tuple[int, datetime]]:
        found = {}
        for item in self._fetch(uids, "(UID RFC822.SIZE INTERNALDATE)"):
            line = item[0] if isinstance(item, tuple) else item
            if isinstance(line, bytes) and (uid := _number(line, b"UID ")) is not None:
                found[uid] = (_number(line, b"RFC822.SIZE ") or 0, _received(line))
        return found

    def _sources(self, uids: Sequence[int], part: str) -> dict[int, bytes]:
        found = {}
        items = self._fetch(uids, f"(UID {part})")
        for position, item in enumerate(items):
            if not isinstance(item, tuple):
                continue
            after = items[position + 1] if position + 1 < len(items) else b""
            line = item[0] + (after if isinstance(after, bytes) else b"")
            if (uid := _number(line, b"UID ")) is not None:
                found[uid] = item[1]
        return found

    def _fetch(self, uids: Sequence[int], parts: str) -> list[Any]:
        if not uids:
            return []
        answer, items = self.box.client.uid("fetch", ",".join(map(str, uids)), parts)
        if answer != "OK":
            raise ValueError(f"FETCH was answered with {answer}")
        return items


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _connect(account: MailAccount, login: MailLogin) -> BaseMailBox:
    host, port = account.imap_host, account.imap_port
    box: BaseMailBox
    if account.imap_security == "tls":
        box = MailBox(host, port, timeout=TIMEOUT_S, ssl_context=ssl.create_default_context())
    elif account.imap_security == "starttls":
        box = MailBoxStartTls(
            host, port, timeout=TIMEOUT_S, ssl_context=ssl.create_default_context()
        )
    else:
        box = MailBoxUnencrypted(host, port, timeout=TIMEOUT_S)
    if login.is_token:
        box.xoauth2(login.user, login.secret, initial_folder=None)
    else:
        ascii_only = f"{login.user}{login.secret}".isascii()
        log_in = box.login if ascii_only else box.login_utf8
        log_in(login.user, login.secret, initial_folder=None)
    return box


def _login_error(account: MailAccount, error: Exception) -> ChannelUnavailable | CredentialRefused:
    said = str(error).lower()
    if any(mark in said for mark in _LOGIN_LATER):
        return ChannelUnavailable(f"{account.imap_host} does not accept a login now")
    return CredentialRefused(
        f"{account.imap_host} refuses the login of {account.login}",
        hint="make a new app password, then `butlers connect email`",
    )


def _number(line: bytes, name: bytes) -> int | None:
    _, found, rest = line.partition(name)
    digits = rest.split(b" ")[0].rstrip(b")") if found else b""
    return int(digits) if digits.isdigit() else None


def _received(line: bytes) -> datetime:
    """Return the INTERNALDATE of an answer, or now if it is malformed."""
    rest = line.partition(b'INTERNALDATE "')[2]
    text = rest.partition(b'"')[0].decode("ascii", "replace").strip()
    try:
        return datetime.strptime(text, "%d-%b-%Y %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)
