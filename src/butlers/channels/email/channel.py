"""The email channel: its registration and its doctor check."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from butlers.channels.base import (
    Channel,
    ChannelCheck,
    ChannelSender,
    InboundContext,
    OutboundContext,
    ReplyContext,
)
from butlers.channels.email import tools
from butlers.channels.email.config import (
    EmailInbound,
    EmailOutbound,
    InboundAccounts,
    OutboundAccounts,
)
from butlers.channels.email.connector import run_mailbox
from butlers.channels.email.parser import EMAIL, reply_context
from butlers.channels.email.sender import EmailSender
from butlers.domain.message import PolicyTier


class EmailChannel(Channel):
    name = EMAIL
    outbound_config = OutboundAccounts
    inbound_config = InboundAccounts
    threads_are_topics = True
    known_tier = PolicyTier.HIGH_PRIORITY
    tools = tools.TOOLS

    def normalize_address(self, identity: str) -> str:
        return identity.strip().casefold()  # mail programs write one address in several ways

    def reply_context(self, raw: Mapping[str, Any]) -> ReplyContext:
        return reply_context(raw)

    def sender(
        self, config: Mapping[str, EmailOutbound], context: OutboundContext
    ) -> ChannelSender:
        return EmailSender(config, context.secret, context.clock)

    def services(
        self, config: Mapping[str, EmailOutbound], context: OutboundContext, sender: ChannelSender
    ) -> Sequence[object]:
        assert isinstance(sender, EmailSender)
        return (tools.EmailService(config, context.secret, sender),)

    async def run_connector(
        self, config: Mapping[str, EmailInbound], context: InboundContext
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for name, account in config.items():
                group.create_task(run_mailbox(name, account, context))

    def check(
        self,
        outbound: Mapping[str, EmailOutbound] | None,
        inbound: Mapping[str, EmailInbound] | None,
        secrets: Collection[str] | None,
    ) -> Sequence[ChannelCheck]:
        if not outbound and not inbound:
            return [ChannelCheck(EMAIL, "absent", "not connected", "`butlers connect email`")]
        checks = [
            *(
                _check(f"from {one.address}", one.secret, secrets)
                for one in (outbound or {}).values()
            ),
            *(_check(f"to {one.address}", one.secret, secrets) for one in (inbound or {}).values()),
        ]
        for name, account in (inbound or {}).items():
            if not account.auth_servers:
                hint = f"set auth_servers in [connectors.email.{name}]"
                detail = f"{name}: no mail counts as genuine, not even yours"
                checks.append(ChannelCheck(EMAIL, "broken", detail, hint))
        return checks


def _check(mail: str, secret: str, stored: Collection[str] | None) -> ChannelCheck:
    if stored is None:
        return ChannelCheck(EMAIL, "ok", f"mail {mail}: connected, secret {secret} not checked")
    if secret in stored:
        return ChannelCheck(EMAIL, "ok", f"mail {mail}: connected, secret {secret} is stored")
    hint = f"`butlers secrets set {shlex.quote(secret)}`"
    return ChannelCheck(EMAIL, "broken", f"mail {mail}: the secret {secret} is not stored", hint)


CHANNEL = EmailChannel()
