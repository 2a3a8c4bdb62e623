"""Configuration of the email channel: one table per mailbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from butlers.channels.base import ChannelConfig
from butlers.config.document import refuse
from butlers.config.values import Text, WebUrl
from butlers.domain.json_safe import freeze

Security = Literal["tls", "starttls", "plain"]
Port = Annotated[int, Field(ge=1, le=65535)]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def _account_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise refuse(
            f"{value!r} is not a mailbox's name: lower-case letters, digits and '-', a letter first"
        )
    return value


AccountName = Annotated[str, AfterValidator(_account_name)]


class OAuthConfig(ChannelConfig):
    """``oauth`` of a mailbox: how a new access token is fetched with the stored refresh token."""

    client_id: Text
    """Id of the client that is registered at the provider."""
    token_url: WebUrl
    """Address that gives out access tokens."""
    client_secret: Text | None = None
    """Name of the stored secret with the client's secret, if the provider wants one."""


class MailAccount(ChannelConfig):
    """The IMAP side of a mailbox."""

    address: Text
    """Address of the mailbox."""
    user: Text | None = None
    """Name to log in with. Default: the address."""
    secret: Text
    """Name of the stored secret: the password, an app password, or a refresh token with `oauth`."""
    imap_host: Text
    """Name of the IMAP server."""
    imap_port: Port = 993
    """Port of the IMAP server."""
    imap_security: Security = "tls"
    """`tls`, `starttls`, or `plain`, which only makes sense on the same machine."""
    oauth: OAuthConfig | None = None
    """Log in with OAuth instead of a password."""

    @property
    def login(self) -> str:
        return self.user or self.address


class EmailInbound(MailAccount):
    """``[connectors.email.NAME]``: a mailbox that is read."""

    folders: tuple[Text, ...] = ("INBOX",)
    """Folders that are read. New mail in the first one is seen at once."""
    answers: bool = False
    """The mailbox is the butlers' own: answers go to the sender. Default: the mailbox is yours, and
    answers to other people's mail go to you."""
    owner_addresses: tuple[Text, ...] = ()
    """Addresses that are you, if the server says that a mail is genuine."""
    auth_servers: tuple[Text, ...] = ()
    """Names of your mail server in `Authentication-Results`. Without one, no sender counts as genuine."""
    history_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Older mail that is stored for search when the mailbox is connected. No butler reads it."""
    max_mb: Annotated[int, Field(ge=1, le=100)] = 30
    """Larger mail is stored without its content."""
    poll_s: Annotated[int, Field(ge=1, le=1500)] = 60
    """Seconds between two looks at the folders after the first, or at all without IDLE."""


class EmailOutbound(MailAccount):
    """``[channels.email.NAME]``: a mailbox that mail is sent from."""

    name: Text | None = None
    """Name of the sender that people see. Default: the address."""
    smtp_host: Text
    """Name of the SMTP server."""
    smtp_port: Port = 465
    """Port of the SMTP server."""
    smtp_security: Security = "tls"
    """`tls`, `starttls`, or `plain`, which only makes sense on the same machine."""
    sent_folder: Text | None = None
    """Folder for a copy of sent mail. Default: none, because many servers keep one themselves."""
    drafts_folder: Text = "Drafts"
    """Folder for drafts."""


InboundAccounts = Annotated[Mapping[AccountName, EmailInbound], AfterValidator(freeze)]
OutboundAccounts = Annotated[Mapping[AccountName, EmailOutbound], AfterValidator(freeze)]
