"""Proof that a mailbox works: a mail to itself comes back, and its older mail can be counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date

from butlers.channels.base import ReadSecret
from butlers.channels.email.config import EmailOutbound
from butlers.channels.email.imap import ImapConnection
from butlers.channels.email.oauth import LoginSource
from butlers.channels.email.sender import EmailSender
from butlers.domain.clock import SystemClock, uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import ChannelUnavailable

LOOK_EVERY_S = 1.0
TEXT = "This mail shows that your Butlers can send and receive mail. You can delete it."


@dataclass(frozen=True, slots=True)
class MailHistory:
    """Older mail of a mailbox."""

    mails: int
    size_bytes: int

    @property
    def tokens(self) -> int:
        """A rough estimate of what a model would read: a third of the bytes is text."""
        return self.size_bytes // 12


async def prove(account: EmailOutbound, secret: ReadSecret, timeout_s: float = 60.0) -> str:
    """Send a mail to the mailbox itself and return its Message-ID once it has arrived.

    It is sent directly, because no fleet with this mailbox runs yet.
    """
    sender = EmailSender({"new": account}, secret, SystemClock())
    delivery = DeliveryRequest(
        uuid7(),
        "connect",
        Intent.SEND,
        "email",
        f"new:{account.address}",
        TEXT,
        subject="Connected",
    )
    sent = (await sender.send(delivery)).provider_message_id
    connection = ImapConnection(account, await LoginSource(account, secret).current())

    def look() -> bool:
        connection.open_folder("INBOX")
        return bool(connection.box.uids(f'HEADER Message-ID "{sent}"'))

    try:
        async with asyncio.timeout(timeout_s):
            while not await connection.run(look):  # noqa: ASYNC110  (a server is asked)
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise ChannelUnavailable(
            f"the mail to {account.address} was sent, and did not arrive in {timeout_s:.0f} seconds",
            hint="look into the spam folder, then run the command again",
        ) from None
    finally:
        connection.abort()
    return sent


async def log_in(account: EmailOutbound, secret: ReadSecret) -> None:
    """Log in over IMAP. Raises CredentialRefused or ChannelUnavailable."""
    connection = ImapConnection(account, await LoginSource(account, secret).current())
    await connection.run(lambda: connection.open_folder("INBOX"))
    connection.abort()


async def count_history(account: EmailOutbound, secret: ReadSecret, since: date) -> MailHistory:
    connection = ImapConnection(account, await LoginSource(account, secret).current())

    def look() -> MailHistory:
        connection.open_folder("INBOX")
        uids = connection.search(1, None, since)
        return MailHistory(len(uids), connection.total_size(uids))

    try:
        return await connection.run(look)
    finally:
        connection.abort()
