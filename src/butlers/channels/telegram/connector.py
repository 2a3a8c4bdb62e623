"""The Telegram connector: fetches updates by long polling, or takes them from Telegram's webhook requests."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog
from starlette.requests import Request

from butlers.channels.base import InboundContext, ReadSecret, read_body
from butlers.channels.polling import HEARTBEAT_S, Cursor, PolledMessage, PollingConnector
from butlers.channels.telegram.api import MAX_DOWNLOAD_BYTES, BotApi
from butlers.channels.telegram.config import TelegramInbound
from butlers.channels.telegram.parser import (
    TELEGRAM,
    UPDATES,
    IgnoredUpdate,
    TelegramFile,
    TelegramMessage,
    parse_update,
    update_id,
)
from butlers.channels.telegram.progress import ProgressSigns
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import (
    ButlersError,
    ChannelError,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryUncertain,
    InvalidMessage,
    NotAuthenticated,
)
from butlers.domain.json_safe import parse_json
from butlers.domain.message import Attachment, InboundEnvelope
from butlers.domain.registration import ConnectorState, Heartbeat
from butlers.queue.loops import repeat
from butlers.secrets.credentials import CredentialMissing
from butlers.tools.attachments import reason_to_refuse

log = structlog.get_logger()

ENDPOINT = "telegram:bot"
BATCH = 100
MAX_WEBHOOK_BYTES = 2**20
SECRET_HEADER = "x-telegram-bot-api-secret-token"


async def open_api(config: TelegramInbound, secret: ReadSecret) -> BotApi:
    try:
        return BotApi(await secret(config.token), config.api_url)
    except CredentialMissing as error:
        raise CredentialRefused(error.message, hint=error.hint) from error


class TelegramSource:
    """Updates of the bot, in order. Telegram forgets an update once a later one is asked for."""

    kind, endpoint = TELEGRAM, ENDPOINT

    def __init__(self, config: TelegramInbound, context: InboundContext) -> None:
        self._config = config
        self._context = context
        self._seen: dict[str, int] = {}  # by bot: the last update that needed no acceptance
        self._polls = False
        self.buttons: dict[str, str] = {}  # callback queries to confirm, by event id

    async def poll(self, cursor: Cursor | None) -> Sequence[PolledMessage]:
        api = await open_api(self._config, self._context.secret)
        await self._end_webhook(api)
        bot = api.bot_id
        known = cursor["update"] if cursor and cursor["bot"] == bot else 0
        known = max(known, self._seen.get(bot, 0))
        arguments = {
            "offset": known + 1,
            "limit": BATCH,
            "timeout": self._config.poll_s,
            "allowed_updates": list(UPDATES),
        }
        updates = await _receive(api, "getUpdates", arguments, self._config.poll_s)
        found: list[PolledMessage] = []
        for update in updates if isinstance(updates, list) else ():
            message = await self._read(api, update)
            number = update_id(update)
            if number is None:
                continue
            if message is None and not found:
                self._seen[bot] = number  # everything before it is accepted
            elif message is not None:
                found.append(PolledMessage(message, {"bot": bot, "update": number}))
        return found

    async def _end_webhook(self, api: BotApi) -> None:
        """End a webhook before the first poll: Telegram refuses polls while there is one."""
        if not self._polls:
            await _receive(api, "deleteWebhook", {"drop_pending_updates": False})
            self._polls = True

    async def _read(self, api: BotApi, update: Any) -> InboundEnvelope | None:
        parsed = parse_update(update)
        if isinstance(parsed, IgnoredUpdate):
            self._context.count_rejected(ENDPOINT, parsed.reason)
            log.info("update ignored", reason=parsed.reason)
            return None
        if parsed.button is not None:
            self.buttons[parsed.envelope.event.external_event_id] = parsed.button
        return await fetch_files(api, parsed)


async def run_polling(config: TelegramInbound, context: InboundContext) -> None:
    source = TelegramSource(config, context)
    signs = ProgressSigns(context.progress)
    secret = context.secret

    async def show(envelope: InboundEnvelope, answer: dict[str, Any]) -> None:
        api = await open_api(config, secret)
        query = source.buttons.pop(envelope.event.external_event_id, None)
        if query is not None:
            signs.confirm_button(api, envelope, query, answer)
        elif config.progress:
            signs.show(api, envelope, answer)

    connector = PollingConnector(
        source,
        context.inbox,
        context.clock,
        tell_owner=context.tell_owner,
        accepted=show,
        rereads=False,
    )
    try:
        await connector.run()
    finally:
        await signs.close()


async def fetch_files(api: BotApi, message: TelegramMessage) -> InboundEnvelope:
    """Return the envelope with its files. A file that cannot be used is named in the text instead."""
    files, notes = [], []
    for file in message.files:
        content = await _download(api, file)
        refusal = (
            content if isinstance(content, str) else reason_to_refuse(file.media_type, content)
        )
        if refusal or isinstance(content, str):
            notes.append(f"(A file {file.filename or file.media_type!r} is missing: {refusal}.)")
            continue
        encoded = base64.b64encode(content).decode("ascii")
        files.append(Attachment(file.media_type, file.filename, len(content), content=encoded))
    return message.with_files(tuple(files), tuple(notes))


async def _download(api: BotApi, file: TelegramFile) -> bytes | str:
    """Return the file, or the reason why there is none."""
    if (file.size_bytes or 0) > MAX_DOWNLOAD_BYTES:
        return "bots cannot fetch files of more than 20 MB"
    try:
        found = await api.call("getFile", {"file_id": file.file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str) or ".." in path:
            return "Telegram did not say where it is"
        return await api.download(path)
    except CredentialRefused:
        raise
    except ChannelError as error:
        return error.message


async def _receive(api: BotApi, method: str, arguments: Any, wait_s: float = 0.0) -> Any:
    """Call a method that changes nothing for the person, so that a lost answer is just a failure."""
    try:
        return await api.call(method, arguments, wait_s=wait_s)
    except DeliveryUncertain as error:
        raise ChannelUnavailable(error.message) from error


# -- webhook ------------------------------------------------------------------------------------------


class TelegramWebhook:
    """Takes updates that Telegram posts. Telegram posts an update again until it gets a 2xx answer."""

    def __init__(self, config: TelegramInbound, context: InboundContext) -> None:
        self._config = config
        self._context = context
        self._signs = ProgressSigns(context.progress)

    async def receive(self, request: Request) -> dict[str, Any]:
        expected = await self._context.secret(self._config.webhook_secret or "")
        given = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise NotAuthenticated("the secret token is missing or wrong")
        try:
            update = parse_json(await read_body(request, MAX_WEBHOOK_BYTES))
        except ValueError as error:
            raise InvalidMessage(f"the body is not JSON: {error}") from None
        return await self._accept(update)

    async def _accept(self, update: Any) -> dict[str, Any]:
        parsed = parse_update(update)
        if isinstance(parsed, IgnoredUpdate):
            self._context.count_rejected(ENDPOINT, parsed.reason)
            return {"status": "ignored", "reason": parsed.reason}
        api = await open_api(self._config, self._context.secret)
        envelope = await fetch_files(api, parsed)
        answer = await self._context.inbox.accept(envelope, counted_as=ENDPOINT)
        if parsed.button is not None:
            self._signs.confirm_button(api, envelope, parsed.button, answer)
        elif self._config.progress:
            self._signs.show(api, envelope, answer)
        return answer

    async def run(self) -> None:
        """Register the webhook with Telegram, again and again, and report the connector's health."""
        instance, began = uuid7(), self._context.clock.monotonic()

        async def register() -> None:
            error = await self._register()
            uptime_s = self._context.clock.monotonic() - began
            beat = _heartbeat(self._context.clock, instance, uptime_s, error)
            await self._context.inbox.save_heartbeat(beat)

        try:
            await repeat(register, "telegram webhook", every_s=HEARTBEAT_S)
        finally:
            await self._signs.close()

    async def _register(self) -> str | None:
        """Set the webhook if it is not set. Returns what is wrong, or None."""
        try:
            api = await open_api(self._config, self._context.secret)
            known = await _receive(api, "getWebhookInfo", {})
            url = known.get("url") if isinstance(known, dict) else None
            if url != self._config.webhook_url:
                token = await self._context.secret(self._config.webhook_secret or "")
                arguments = {
                    "url": self._config.webhook_url,
                    "secret_token": token,
                    "allowed_updates": list(UPDATES),
                }
                await _receive(api, "setWebhook", arguments)
        except ButlersError as error:
            log.warning("telegram webhook is not registered", error=error.message)
            return error.message
        return None


def _heartbeat(clock: Clock, instance: UUID, uptime_s: float, error: str | None) -> Heartbeat:
    state = ConnectorState.ERROR if error else ConnectorState.HEALTHY
    return Heartbeat(
        TELEGRAM, ENDPOINT, instance, clock.now(), state=state, error=error, uptime_s=uptime_s
    )
