"""Turns a mail into an envelope: its sender with trust, its thread, its tier, and what an answer needs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from butlers.channels.base import ReplyContext
from butlers.channels.email.config import EmailInbound
from butlers.channels.email.mime import MailFile, ParsedMail, message_ids, read_mail
from butlers.channels.email.quoting import split_quoted
from butlers.channels.email.trust import is_genuine
from butlers.domain.message import (
    Attachment,
    Control,
    Event,
    InboundEnvelope,
    IngestionTier,
    Payload,
    PolicyTier,
    Sender,
    Source,
)
from butlers.tools.attachments import reason_to_refuse

EMAIL = "email"
UNVERIFIED = "(unverified)"
OWN_ID = "<butlers."  # start of the Message-ID of mail that we sent
MAX_QUOTED = 20_000
MAX_SUBJECT = 250
UNKNOWN_SENDER = "unknown sender"


@dataclass(frozen=True, slots=True)
class FetchedMail:
    """A mail as the server gave it. ``source`` holds only the headers if the mail is too large."""

    source: bytes
    size: int
    fallback_id: str  # for a mail without a Message-ID: folder, UIDVALIDITY and UID
    received_at: datetime
    too_large: bool = False


def parse_mail(
    name: str, account: EmailInbound, fetched: FetchedMail, *, history: bool = False
) -> InboundEnvelope:
    """Return the envelope of a mail in the mailbox ``name``."""
    mail = read_mail(fetched.source)
    genuine = _is_genuine(mail, account)
    own = mail.message_id.startswith(OWN_ID)
    address = mail.sender or UNKNOWN_SENDER
    files, notes = _files(mail.files) if not history else ((), ())
    new, quoted = split_quoted(mail.text)
    notes = (*mail.notes, *notes)
    if fetched.too_large:
        notes = (f"(The mail has {fetched.size:,} bytes; its content was not fetched.)", *notes)
    if history and mail.files:
        notes = (*notes, f"(It has {len(mail.files)} attachments.)")
    return InboundEnvelope(
        Source(EMAIL, "imap", f"{name}:{address}"),
        Event(
            mail.message_id or fetched.fallback_id,
            fetched.received_at,
            (mail.references or (mail.message_id or fetched.fallback_id,))[0],
            mail.references[-1] if mail.references else None,
        ),
        Sender(address if genuine else f"{address} {UNVERIFIED}"),
        Payload(_text(mail, new, notes), _raw(mail, account, genuine, quoted), files),
        Control(
            idempotency_key=_key(mail, fetched),
            policy_tier=_tier(mail, account),
            ingestion_tier=_ingestion(mail, history or own),
        ),
    )


def reply_context(raw: Mapping[str, Any]) -> ReplyContext:
    """Return what the answer to a stored mail needs."""
    headers = raw.get("headers") or {}
    subject = str(headers.get("subject", ""))[:MAX_SUBJECT].strip()
    answer = subject if subject.lower().startswith("re:") else f"Re: {subject}".strip()
    thread = [*message_ids(str(headers.get("references", "")))]
    thread += message_ids(str(headers.get("in-reply-to", ""))) if not thread else []
    own = message_ids(str(headers.get("message-id", "")))
    return ReplyContext(bool(raw.get("answerable")), answer, tuple(dict.fromkeys([*thread, *own])))


def _is_genuine(mail: ParsedMail, account: EmailInbound) -> bool:
    domain = mail.sender.rpartition("@")[2]
    if mail.several_senders:
        return False
    return is_genuine(mail.authentication, account.auth_servers, domain)


def _text(mail: ParsedMail, new: str, notes: tuple[str, ...]) -> str:
    """Return the text that a butler reads. The subject belongs to it at the start of a thread."""
    subject = mail.headers.get("subject", "")
    first = subject if subject and not mail.references else ""
    parts = [part for part in (first, new, "\n".join(notes)) if part]
    return "\n\n".join(parts) or "(The mail is empty.)"


def _raw(mail: ParsedMail, account: EmailInbound, genuine: bool, quoted: str) -> dict[str, Any]:
    owners = {one.casefold() for one in account.owner_addresses}
    from_owner = genuine and mail.sender in owners
    return {
        "headers": mail.headers,
        "genuine": genuine,
        "automatic": mail.automatic,
        "answerable": not mail.automatic and bool(mail.sender) and (account.answers or from_owner),
        "quoted": quoted[:MAX_QUOTED],
    }


def _files(files: tuple[MailFile, ...]) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    kept, notes = [], []
    for file in files:
        if refusal := reason_to_refuse(file.media_type, file.content):
            shown = file.filename or file.media_type
            notes.append(f"(The attachment {shown!r} was left out: {refusal}.)")
            continue
        encoded = base64.b64encode(file.content).decode("ascii")
        kept.append(Attachment(file.media_type, file.filename, len(file.content), content=encoded))
    return tuple(kept), tuple(notes)


def _key(mail: ParsedMail, fetched: FetchedMail) -> str:
    """Return the key that one mail keeps in every folder, and that two mails with one id do not share."""
    digest = hashlib.sha256(fetched.source)
    if fetched.too_large:
        digest.update(str(fetched.size).encode())
    return f"mail:{digest.hexdigest()}"


def _tier(mail: ParsedMail, account: EmailInbound) -> PolicyTier:
    if mail.automatic:
        return PolicyTier.DEFAULT
    if any(one.startswith(OWN_ID) for one in mail.references):
        return PolicyTier.HIGH_PRIORITY  # it answers a mail of ours
    to = " ".join((mail.headers.get("to", ""), mail.headers.get("cc", ""))).casefold()
    direct = account.address.casefold() in to
    return PolicyTier.INTERACTIVE if direct else PolicyTier.DEFAULT


def _ingestion(mail: ParsedMail, history: bool) -> IngestionTier:
    if history:
        return IngestionTier.HISTORY
    return IngestionTier.BULK if mail.automatic else IngestionTier.FULL
