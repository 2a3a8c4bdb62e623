"""Sends deliveries over SMTP. The Message-ID is made of the delivery's id before anything is sent.

A target is ``MAILBOX:ADDRESS``. SMTP has no idempotency key: a delivery whose answer is lost after the
content was sent stays uncertain.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from uuid import UUID

import aiosmtplib
import structlog

from butlers.channels.base import ReadSecret
from butlers.channels.email.config import EmailOutbound
from butlers.channels.email.imap import ImapConnection
from butlers.channels.email.oauth import LoginSource
from butlers.channels.email.parser import EMAIL
from butlers.domain.clock import Clock
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest, Intent
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelError,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryRefused,
    DeliveryUncertain,
)

log = structlog.get_logger()

TIMEOUT_S = 30.0
GREYLIST_PAUSE_S = 120.0
MAX_SUBJECT = 250
_PERMANENT = 500
_AUTHENTICATION = (530, 534, 535)


@dataclass(frozen=True, slots=True)
class NewMail:
    """The content of a mail that is sent or kept as a draft."""

    delivery_id: UUID
    to: str
    text: str
    subject: str | None = None
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    automatic: bool = True


class EmailSender:
    name = EMAIL

    def __init__(
        self, accounts: Mapping[str, EmailOutbound], secret: ReadSecret, clock: Clock
    ) -> None:
        self._accounts = accounts
        self._logins = {name: LoginSource(one, secret) for name, one in accounts.items()}
        self._clock = clock

    def idempotent(self, target: str) -> bool:
        return False

    def line(self, target: str) -> str | None:
        name = target.partition(":")[0]
        return f"{self.name}:{name}" if name in self._accounts else None

    async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
        if delivery.intent is Intent.REACT:
            raise DeliveryRefused("mail has no reactions", hint="send a reply instead")
        name, address = self._address(delivery.target)
        account = self._accounts[name]
        mail = NewMail(
            delivery.delivery_id,
            address,
            delivery.text,
            delivery.subject,
            delivery.source_event,
            delivery.references,
        )
        message = build_message(account, mail, self._clock)
        source = message.as_bytes(policy=SMTP)
        await self._transmit(name, address, source)
        await self._keep_copy(name, source)
        return DeliveryReceipt(
            delivery.delivery_id, self.name, str(message["Message-ID"]), self._clock.now()
        )

    async def save_draft(self, name: str, mail: NewMail) -> str:
        """Put a mail into the drafts folder instead of sending it. Returns its Message-ID."""
        account = self._account(name)
        message = build_message(account, mail, self._clock)
        await self._append(name, message.as_bytes(policy=SMTP), account.drafts_folder, "\\Draft")
        return str(message["Message-ID"])

    def _address(self, target: str) -> tuple[str, str]:
        name, _, address = target.partition(":")
        self._account(name)
        local, at, domain = address.rpartition("@")
        plain = address.isprintable() and not any(sign in address for sign in ' <>,;"\\')
        if not at or not local or not domain or not plain:
            raise DeliveryRefused(
                f"{address[:80]!r} is not a mail address", hint="a target is MAILBOX:ADDRESS"
            )
        return name, address

    def _account(self, name: str) -> EmailOutbound:
        if name not in self._accounts:
            known = ", ".join(self._accounts) or "none"
            raise DeliveryRefused(
                f"there is no mailbox {name[:80]!r}",
                hint=f"a target is MAILBOX:ADDRESS; mailboxes: {known}",
            )
        return self._accounts[name]

    async def _transmit(self, name: str, address: str, source: bytes) -> None:
        account = self._accounts[name]
        login = await self._logins[name].current()
        client = _client(account)
        try:
            try:
                await client.connect()
                await client.ehlo()
                if login.is_token:
                    await _login_with_token(client, login.xoauth2)
                elif client.supports_extension("auth"):
                    await client.login(login.user, login.secret)
                await client.mail(account.address, encoding="utf-8")
                await client.rcpt(address, encoding="utf-8")
            except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
                raise _error_before_content(account, error) from None
            try:
                await client.data(source)
            except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
                raise _error_after_content(account, error) from None
        finally:
            client.close()

    async def _keep_copy(self, name: str, source: bytes) -> None:
        """Put a copy into the folder for sent mail. The mail is sent, so a failure is only logged."""
        folder = self._accounts[name].sent_folder
        if folder is None:
            return
        try:
            await self._append(name, source, folder, "\\Seen")
        except ButlersError as error:
            log.warning("sent mail has no copy", mailbox=name, folder=folder, error=error.message)

    async def _append(self, name: str, source: bytes, folder: str, flag: str) -> None:
        login = await self._logins[name].current()
        connection = ImapConnection(self._accounts[name], login)

        def work() -> None:
            connection.append(source, folder, flag)
            connection.close()

        await connection.run(work)


def build_message(account: EmailOutbound, mail: NewMail, clock: Clock) -> EmailMessage:
    """Return the mail. It says that a program wrote it (RFC 3834), so that no program answers it."""
    message = EmailMessage(policy=SMTP)
    local, _, domain = account.address.rpartition("@")
    message["From"] = Address(account.name or "", local, domain)
    message["To"] = mail.to
    message["Subject"] = " ".join((mail.subject or "").split())[:MAX_SUBJECT] or _subject(mail.text)
    message["Date"] = format_datetime(clock.now())
    message["Message-ID"] = message_id(mail.delivery_id, domain)
    if mail.in_reply_to and mail.in_reply_to.startswith("<"):
        message["In-Reply-To"] = mail.in_reply_to
        thread = dict.fromkeys([*mail.references, mail.in_reply_to])
        message["References"] = " ".join(thread)
    if mail.automatic:
        message["Auto-Submitted"] = "auto-replied" if mail.in_reply_to else "auto-generated"
    message.set_content(mail.text)
    return message


def message_id(delivery_id: UUID, domain: str) -> str:
    return f"<butlers.{delivery_id.hex}@{domain}>"


def _subject(text: str) -> str:
    words = " ".join(text.split())
    return f"{words[:59]}…" if len(words) > 60 else words


def _client(account: EmailOutbound) -> aiosmtplib.SMTP:
    tls = account.smtp_security == "tls"
    return aiosmtplib.SMTP(
        hostname=account.smtp_host,
        port=account.smtp_port,
        timeout=TIMEOUT_S,
        use_tls=tls,
        start_tls=account.smtp_security == "starttls",
        tls_context=ssl.create_default_context() if account.smtp_security != "plain" else None,
        local_hostname="butlers.invalid",
    )


async def _login_with_token(client: aiosmtplib.SMTP, answer: str) -> None:
    code, text = await client.execute_command(
        b"AUTH", b"XOAUTH2", base64.b64encode(answer.encode())
    )
    if code != aiosmtplib.SMTPStatus.auth_successful:
        raise aiosmtplib.SMTPAuthenticationError(code, text)


def _error_before_content(account: EmailOutbound, error: BaseException) -> ChannelError:
    """Return the error of a step before the content: nothing was sent."""
    host = account.smtp_host
    code = getattr(error, "code", None)
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused) and error.recipients:
        code = error.recipients[0].code
    said = str(getattr(error, "message", error))[:200]
    if isinstance(error, aiosmtplib.SMTPAuthenticationError) or code in _AUTHENTICATION:
        if isinstance(code, int) and code < _PERMANENT:
            return ChannelUnavailable(f"{host} does not accept a login now: {code} {said}")
        return CredentialRefused(
            f"{host} refuses the login of {account.login}",
            hint="make a new app password, then `butlers connect email`",
        )
    if not isinstance(code, int) or code < 0:
        return ChannelUnavailable(f"{host} cannot be reached ({type(error).__name__})")
    if code >= _PERMANENT:
        return DeliveryRefused(f"{host} refused it: {code} {said}", response=said)
    busy = ChannelBusy(f"{host} asks for a pause: {code} {said}", response=said)
    busy.pause_s = GREYLIST_PAUSE_S
    return busy


def _error_after_content(account: EmailOutbound, error: BaseException) -> ChannelError:
    """Return the error of the content itself. Without an answer it may have been accepted."""
    if isinstance(error, aiosmtplib.SMTPResponseException) and error.code > 0:
        return _error_before_content(account, error)
    return DeliveryUncertain(
        f"{account.smtp_host} did not confirm the mail ({type(error).__name__})"
    )
