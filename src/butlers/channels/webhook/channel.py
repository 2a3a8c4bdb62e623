"""The webhook channel: its registration, its configuration, its HTTP route and its heartbeats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import structlog
from pydantic import AfterValidator
from starlette.requests import Request

from butlers.channels.base import (
    Channel,
    ChannelCheck,
    ChannelSender,
    InboundContext,
    OutboundContext,
    RequestHandler,
    read_body,
)
from butlers.channels.polling import HEARTBEAT_S
from butlers.channels.source_rate import SourceRate
from butlers.channels.webhook.parser import NotSigned, check_headers, check_signature, parse
from butlers.channels.webhook.sender import WEBHOOK, OutboundWebhook, WebhookSender
from butlers.config.document import refuse
from butlers.config.values import ConfigTable, Text
from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError
from butlers.domain.json_safe import freeze
from butlers.domain.message import OWNER
from butlers.domain.registration import Heartbeat
from butlers.queue.loops import repeat
from butlers.secrets.credentials import CredentialMissing

log = structlog.get_logger()

MAX_WEBHOOK_BYTES = 2**20

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def _webhook_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise refuse(
            f"{value!r} is not a webhook's name: lower-case letters, digits and '-', "
            "a letter first, at most 40"
        )
    return value


WebhookName = Annotated[str, AfterValidator(_webhook_name)]


class InboundWebhook(ConfigTable):
    """``[connectors.webhook.NAME]``: programs post messages signed with the secret."""

    secret: Text
    """Name of the stored secret that messages are signed with."""
    owner: bool = False
    """Messages on this webhook count as your own."""


OutboundConfig = Mapping[str, OutboundWebhook]
InboundConfig = Mapping[str, InboundWebhook]


class WebhookChannel(Channel):
    name = WEBHOOK
    shows_reactions = True
    outbound_config = Annotated[Mapping[WebhookName, OutboundWebhook], AfterValidator(freeze)]
    inbound_config = Annotated[Mapping[WebhookName, InboundWebhook], AfterValidator(freeze)]

    def sender(self, config: OutboundConfig, context: OutboundContext) -> ChannelSender:
        return WebhookSender(config, context.secret, context.clock)

    def routes(
        self, config: InboundConfig, context: InboundContext
    ) -> Mapping[str, RequestHandler]:
        rate = SourceRate(context.clock)

        async def receive(request: Request) -> dict[str, Any]:
            rate.count(request.client.host if request.client else "")
            return await _receive(request, config, context)

        return {"/webhook/{name}": receive}

    async def run_connector(self, config: InboundConfig, context: InboundContext) -> None:
        """Register the webhooks as connectors, again and again, and the owner's as owner addresses."""
        instance, began = uuid7(), context.clock.monotonic()

        async def register() -> None:
            await _register(config, context, instance, context.clock.monotonic() - began)

        await repeat(register, "webhook heartbeat", every_s=HEARTBEAT_S)

    def check(
        self,
        outbound: OutboundConfig | None,
        inbound: InboundConfig | None,
        secrets: Collection[str] | None,
    ) -> Sequence[ChannelCheck]:
        if not outbound and not inbound:
            hint = "add [channels.webhook.NAME] to butlers/messenger.toml in BUTLERS_HOME"
            return [ChannelCheck("webhook", "absent", "not configured", hint)]
        return [
            *(
                _check(f"to {name}", one.secret_name, secrets)
                for name, one in (outbound or {}).items()
            ),
            *(_check(f"from {name}", one.secret, secrets) for name, one in (inbound or {}).items()),
        ]


async def _receive(
    request: Request, config: InboundConfig, context: InboundContext
) -> dict[str, Any]:
    name = request.path_params["name"]
    hook = config.get(name)
    try:
        check_headers(request.headers, context.clock)
        body = await read_body(request, MAX_WEBHOOK_BYTES)
        # The name is checked last, so that its answer comes when that of a wrong signature does.
        if hook is None:
            raise NotSigned
        check_signature(request.headers, body, await context.secret(hook.secret))
        envelope = parse(name, body, context.clock, owners=hook.owner)
    except ButlersError as error:
        if hook is not None:
            context.count_rejected(name, error.message)
        if isinstance(error, CredentialMissing):
            log.warning("webhook has no secret", webhook=name, error=error.message)
            raise NotSigned from None  # only the owner learns what is missing
        raise
    return await context.inbox.accept(envelope, counted_as=name)


async def _register(
    config: InboundConfig, context: InboundContext, instance: UUID, uptime_s: float
) -> None:
    for name, hook in config.items():
        await context.set_owner_address(WEBHOOK, f"{name}:{OWNER}", hook.owner)
        beat = Heartbeat(WEBHOOK, name, instance, context.clock.now(), uptime_s=uptime_s)
        await context.inbox.save_heartbeat(beat)


def _check(webhook: str, secret: str, stored: Collection[str] | None) -> ChannelCheck:
    if stored is None:
        return ChannelCheck("webhook", "ok", f"{webhook}: configured, secret {secret} not checked")
    if secret in stored:
        return ChannelCheck("webhook", "ok", f"{webhook}: secret {secret} is stored")
    hint = f"`butlers secrets set {shlex.quote(secret)}`"
    return ChannelCheck("webhook", "absent", f"{webhook}: secret {secret} is not stored", hint)


CHANNEL = WebhookChannel()
