"""Tools of the email channel: send and reply through deliveries, keep drafts, search and read mailboxes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from imap_tools import AND
from pydantic import Field

from butlers.channels.base import ReadSecret
from butlers.channels.email.config import EmailOutbound, MailAccount
from butlers.channels.email.imap import ImapConnection
from butlers.channels.email.mime import read_mail
from butlers.channels.email.oauth import LoginSource
from butlers.channels.email.parser import EMAIL
from butlers.channels.email.quoting import split_quoted
from butlers.channels.email.sender import EmailSender, NewMail
from butlers.channels.outgoing import send_and_wait
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotFound
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

CALLERS = frozenset({CallerKind.SESSION, CallerKind.OWNER})
MAX_READ_BYTES = 30 * 2**20
EXCERPT = 300
_FIELDS = ("from", "to", "subject", "since", "before")


class EmailAccounts:
    """The mailboxes that a butler may read."""

    def __init__(self, accounts: Mapping[str, MailAccount], secret: ReadSecret) -> None:
        self.accounts = accounts
        self._logins = {name: LoginSource(one, secret) for name, one in accounts.items()}

    def choose(self, name: str | None) -> str:
        """Return the name of a mailbox; without one, of the only one."""
        if name is None and len(self.accounts) == 1:
            return next(iter(self.accounts))
        if name is None or name not in self.accounts:
            known = ", ".join(self.accounts) or "none"
            raise InvalidArguments(f"there is no mailbox {name!r}", hint=f"mailboxes: {known}")
        return name

    async def connect(self, name: str) -> ImapConnection:
        return ImapConnection(self.accounts[name], await self._logins[name].current())


class EmailService(EmailAccounts):
    """The mailboxes of the Messenger, which can send from them, too."""

    def __init__(
        self, accounts: Mapping[str, EmailOutbound], secret: ReadSecret, sender: EmailSender
    ) -> None:
        super().__init__(accounts, secret)
        self.sender = sender


def _accounts(ctx: CallContext) -> EmailAccounts:
    """Return the mailboxes of the called butler: of the Messenger, or of its email module."""
    return ctx.services.find(EmailAccounts) or ctx.services.modules.instance(EmailAccounts)


@tool(callers=CALLERS, effect=Effect.LONG, aliases=("bot_email_send_message",))
async def email_send_message(
    ctx: CallContext,
    to: str,
    subject: str,
    body: str,
    mailbox: str | None = None,
    draft: bool = False,
) -> dict[str, Any]:
    """Send a mail. message_id is the receipt; a new recipient waits for approval. draft: only keep it."""
    service = ctx.service(EmailService)
    name = service.choose(mailbox)
    if draft:
        return await _draft(service, name, NewMail(uuid7(), to, body, subject, automatic=False))
    return await send_and_wait(ctx, EMAIL, f"{name}:{to}", body, subject=subject)


@tool(callers=CALLERS, effect=Effect.LONG)
async def email_reply_to_thread(
    ctx: CallContext,
    to: str,
    thread_id: str,
    body: str,
    subject: str | None = None,
    mailbox: str | None = None,
    draft: bool = False,
) -> dict[str, Any]:
    """Reply in a thread; thread_id is the Message-ID that is answered. draft: only keep it."""
    service = ctx.service(EmailService)
    name = service.choose(mailbox)
    if not thread_id.startswith("<") or not thread_id.endswith(">"):
        raise InvalidArguments("thread_id is not a Message-ID", hint="for example <a1@example.org>")
    if draft:
        mail = NewMail(uuid7(), to, body, subject, thread_id, automatic=False)
        return await _draft(service, name, mail)
    return await send_and_wait(
        ctx, EMAIL, f"{name}:{to}", body, subject=subject, answers=thread_id, thread=thread_id
    )


async def _draft(service: EmailService, name: str, mail: NewMail) -> dict[str, Any]:
    return {"status": "draft", "message_id": await service.sender.save_draft(name, mail)}


@tool(callers=CALLERS, effect=Effect.LOOK, outside=True, aliases=("bot_email_search_inbox",))
async def email_search_inbox(
    ctx: CallContext,
    query: str,
    mailbox: str | None = None,
    folder: str = "INBOX",
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
) -> dict[str, Any]:
    """Search a mailbox, newest first: words, and from:, to:, subject:, since: and before: (2026-05-31)."""
    accounts = _accounts(ctx)
    name = accounts.choose(mailbox)
    connection = await accounts.connect(name)
    criteria = _criteria(query)

    def look() -> list[dict[str, Any]]:
        state = connection.open_folder(folder)
        uids = sorted((int(uid) for uid in connection.box.uids(criteria, "UTF-8")), reverse=True)
        found = connection.headers(uids[:limit])
        connection.close()
        return [
            {"id": f"{name}/{state.validity}/{uid}/{folder}", **_shown(source)}
            for uid, source in found
        ]

    return {"messages": await connection.run(look)}


@tool(callers=CALLERS, effect=Effect.LOOK, outside=True, aliases=("bot_email_read_message",))
async def email_read_message(
    ctx: CallContext,
    id: str,  # noqa: A002  (the name its callers know)
) -> dict[str, Any]:
    """Read one mail by the id of a search: its headers, text, quoted history and list of attachments."""
    accounts = _accounts(ctx)
    name, validity, uid, folder = _read_id(id)
    connection = await accounts.connect(accounts.choose(name))

    def look() -> bytes | None:
        state = connection.open_folder(folder)
        mails = connection.fetch([uid], MAX_READ_BYTES) if state.validity == validity else []
        connection.close()
        return mails[0].source if mails else None

    source = await connection.run(look)
    if source is None:
        raise NotFound(f"there is no mail {id!r} any more", hint="search again")
    mail = read_mail(source)
    text, quoted = split_quoted(mail.text)
    return {
        "id": id,
        "headers": mail.headers,
        "text": text,
        "quoted": quoted,
        "notes": list(mail.notes),
        "attachments": [
            {"filename": one.filename, "media_type": one.media_type, "bytes": len(one.content)}
            for one in mail.files
        ],
    }


def _read_id(text: str) -> tuple[str, int, int, str]:
    parts = text.split("/", 3)
    if len(parts) != 4 or not parts[1].isdecimal() or not parts[2].isdecimal():
        raise InvalidArguments(f"{text[:80]!r} is not the id of a mail", hint="search first")
    return parts[0], int(parts[1]), int(parts[2]), parts[3]


def _criteria(query: str) -> Any:
    """Return the IMAP search of a query such as ``from:anna invoice since:2026-01-01``."""
    fields: dict[str, Any] = {}
    words = []
    for word in query.split():
        name, colon, value = word.partition(":")
        if colon and name.lower() in _FIELDS and value:
            fields[name.lower()] = _value(name.lower(), value)
        else:
            words.append(word)
    named = {"from": "from_", "since": "date_gte", "before": "date_lt"}
    criteria = {named.get(name, name): value for name, value in fields.items()}
    if words:
        criteria["text"] = " ".join(words)
    return AND(**criteria) if criteria else "ALL"


def _value(name: str, value: str) -> Any:
    if name not in ("since", "before"):
        return value
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise InvalidArguments(
            f"{value[:40]!r} is not a date", hint="write it as 2026-05-31"
        ) from None


def _shown(source: bytes) -> dict[str, Any]:
    headers = read_mail(source).headers
    return {
        name.replace("-", "_"): headers.get(name, "")[:EXCERPT]
        for name in ("from", "to", "subject", "date", "message-id")
    }


READ_TOOLS = (email_search_inbox, email_read_message)
TOOLS = (email_send_message, email_reply_to_thread, *READ_TOOLS)
