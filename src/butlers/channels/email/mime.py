"""Reads a mail, however it is made: headers, readable text, files, and whether a program sent it.

Every part is bounded. A mail that cannot be parsed is shown as the start of its source.
"""

from __future__ import annotations

import email
import email.header
import email.utils
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message

from butlers.channels.email.html import html_to_text
from butlers.channels.files import clean_filename
from butlers.domain.json_safe import text_safe

MAX_PARTS = 200
MAX_BOUNDARIES = 100  # in the source of a mail; more are a bomb, not a mail
MAX_HEADER = 2_000  # characters of one decoded header
MAX_TEXT = 200_000
MAX_FILES = 10
MAX_FILE_BYTES = 25 * 2**20  # of all files of a mail together
MAX_IDS = 30

_BULK = ("bulk", "list", "junk", "auto_reply")
_PROGRAMS = ("mailer-daemon", "postmaster", "no-reply", "noreply", "donotreply", "do-not-reply")
_LISTS = ("list-id", "list-unsubscribe", "list-post", "x-auto-response-suppress", "x-autoreply")
SHOWN_HEADERS = (
    "from", "to", "cc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references",
    "list-id", "list-unsubscribe", "precedence", "auto-submitted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MailFile:
    media_type: str
    filename: str | None
    content: bytes


@dataclass(frozen=True, slots=True)
class ParsedMail:
    """The readable content of a mail."""

    headers: dict[str, str]  # of SHOWN_HEADERS, decoded
    sender: str  # address in the From header; empty if there is none
    several_senders: bool
    authentication: tuple[str, ...]  # Authentication-Results headers, the topmost first
    text: str
    files: tuple[MailFile, ...]
    notes: tuple[str, ...]  # about parts that were left out
    automatic: bool

    @property
    def message_id(self) -> str:
        return first_id(self.headers.get("message-id", ""))

    @property
    def references(self) -> tuple[str, ...]:
        """Ids of the thread's earlier messages, oldest first."""
        found = [*message_ids(self.headers.get("references", ""))]
        found += [
            one for one in message_ids(self.headers.get("in-reply-to", "")) if one not in found
        ]
        return tuple(found)


def read_mail(source: bytes) -> ParsedMail:
    """Parse a mail. Never raises, whatever the source contains."""
    message = _parse(source)
    if message is None:
        return _unreadable(source)
    try:
        return _read(message)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # The email package fails in many ways on headers and encodings that lie.
        return _unreadable(source)


def _parse(source: bytes) -> Message | None:
    if source.lower().count(b"boundary=") > MAX_BOUNDARIES:
        return None
    try:
        return email.message_from_bytes(source)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _unreadable(source: bytes) -> ParsedMail:
    text = text_safe(source[:MAX_TEXT].decode("utf-8", "replace"))[: MAX_TEXT // 10]
    note = "(This mail is malformed; this is the start of its source.)"
    return ParsedMail({}, "", False, (), text, (), (note,), automatic=True)


def _read(message: Message) -> ParsedMail:
    raw = _first_headers(message)
    headers = {name: found for name in SHOWN_HEADERS if (found := _header(raw, name))}
    addresses = email.utils.getaddresses([headers.get("from", "")])
    senders = [address for _, address in addresses if "@" in address]
    plain, html, files, notes = _contents(message)
    text = plain if plain.strip() else html_to_text(html)
    return ParsedMail(
        headers,
        senders[0].strip().casefold()[:500] if senders else "",
        len(senders) != 1 or len(message.get_all("from") or ()) != 1,
        tuple(str(one) for one in (message.get_all("authentication-results") or ())[:20]),
        text_safe(text)[:MAX_TEXT].strip(),
        tuple(files),
        tuple(notes),
        _is_automatic(message, raw, senders[0] if senders else ""),
    )


def _first_headers(message: Message) -> dict[str, str]:
    """Return the first value of each header, by lower-case name: read once, because a lookup reads all."""
    found: dict[str, str] = {}
    for name, value in message.items():
        found.setdefault(name.lower(), str(value))
    return found


def _header(raw: Mapping[str, str], name: str) -> str:
    """Return a decoded header on one line, or an empty text."""
    value = raw.get(name, "")[: 4 * MAX_HEADER]
    if not value.isascii() or "=?" in value:
        value = text_safe(
            "".join(
                content if isinstance(content, str) else _decode(content, charset)
                for content, charset in email.header.decode_header(value)
            )
        )
    return text_safe(" ".join(value.split()))[:MAX_HEADER]


def _decode(content: bytes, charset: str | None) -> str:
    """Decode bytes that may not be in the charset that they claim."""
    for candidate in (charset or "utf-8", "utf-8"):
        try:
            return content.decode(candidate)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    return content.decode("latin-1")


def _contents(message: Message) -> tuple[str, str, list[MailFile], list[str]]:
    """Return the plain text, the HTML, the files, and notes about what was left out."""
    plain: list[str] = []
    html: list[str] = []
    files: list[MailFile] = []
    notes: list[str] = []
    for part in _parts(message, notes):
        kind = part.get_content_type()
        filename = _filename(part)
        attached = part.get_content_disposition() == "attachment" or (
            filename is not None and not kind.startswith("text/")
        )
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes):
            continue
        if not attached and kind == "text/plain":
            plain.append(_decode(content[: 4 * MAX_TEXT], part.get_content_charset()))
        elif not attached and kind == "text/html":
            html.append(_decode(content[: 8 * MAX_TEXT], part.get_content_charset()))
        elif content:
            _add_file(files, notes, MailFile(kind, filename, content))
    return "\n".join(plain), "\n".join(html), files, notes


def _parts(message: Message, notes: list[str]) -> Iterator[Message]:
    """Iterate over the parts without children. A forwarded mail is one part."""
    stack, seen = [message], 0
    while stack:
        part = stack.pop()
        seen += 1
        if seen > MAX_PARTS:
            notes.append(f"(The mail has more than {MAX_PARTS} parts; the rest was left out.)")
            return
        children = part.get_payload() if part.is_multipart() else None
        if isinstance(children, list):
            stack.extend(one for one in reversed(children) if isinstance(one, Message))
        else:
            yield part


def _add_file(files: list[MailFile], notes: list[str], file: MailFile) -> None:
    shown = file.filename or file.media_type
    used = sum(len(one.content) for one in files)
    if len(files) >= MAX_FILES:
        notes.append(f"(The attachment {shown!r} was left out: there are more than {MAX_FILES}.)")
    elif used + len(file.content) > MAX_FILE_BYTES:
        notes.append(f"(The attachment {shown!r} was left out: it is too large.)")
    else:
        files.append(file)


def _filename(part: Message) -> str | None:
    name = part.get_filename()
    if not name:
        return None
    decoded = "".join(
        content if isinstance(content, str) else _decode(content, charset)
        for content, charset in email.header.decode_header(str(name)[:MAX_HEADER])
    )
    return clean_filename(decoded)


def _is_automatic(message: Message, raw: Mapping[str, str], sender: str) -> bool:
    """Return whether a program or a list sent the mail, so that it must not be answered (RFC 3834)."""
    submitted = _header(raw, "auto-submitted").lower()
    if submitted and not submitted.startswith("no"):
        return True
    if _header(raw, "precedence").lower() in _BULK or raw.get("return-path", "").strip() == "<>":
        return True
    if any(name in raw for name in _LISTS):
        return True
    local = sender.partition("@")[0].lower()
    return message.get_content_type() == "multipart/report" or local in _PROGRAMS


def message_ids(text: str) -> list[str]:
    """Return the ids in a header such as References, at most the first and the newest."""
    found = []
    for part in text.split("<")[1:]:
        content, closed, _ = part.partition(">")
        if closed and content and " " not in content and len(content) <= 500:
            found.append(f"<{content}>")
    return found if len(found) <= MAX_IDS else [found[0], *found[-MAX_IDS + 1 :]]


def first_id(text: str) -> str:
    found = message_ids(text)
    return found[0] if found else ""
