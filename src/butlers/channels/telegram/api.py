"""Calls of Telegram's Bot API, and the error that each failed answer means."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx

from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.domain.json_safe import parse_json

API_URL = "https://api.telegram.org"
CONNECT_S = 5.0
TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 8 * 2**20  # 100 updates of a few kilobytes each
MAX_DOWNLOAD_BYTES = 20 * 2**20  # the Bot API serves no larger files
LONGEST_PAUSE_S = 3600.0

_UNAUTHORIZED = (401, 404)  # 404: the token has not even the form of one
_FORBIDDEN, _CONFLICT, _TOO_MANY, _SERVER_ERROR = 403, 409, 429, 500


class ChatMigrated(ButlersError):
    """The group has become a supergroup and has another id now."""

    code = "chat_migrated"
    new_id: int = 0


class PollConflict(ChannelUnavailable):
    """Another program receives the messages of this bot."""

    code = "poll_conflict"
    default_hint = (
        "stop the other program, or make a new token with @BotFather and run"
        " `butlers connect telegram`"
    )


class BotApi:
    """One bot. The token is part of each URL, so no URL may be logged."""

    def __init__(self, token: str, api_url: str = API_URL) -> None:
        self.bot_id = token.partition(":")[0]
        self._base = f"{api_url.rstrip('/')}/bot{token}"
        self._files = f"{api_url.rstrip('/')}/file/bot{token}"
        self._tls = api_url.startswith("https:")

    async def call(self, method: str, arguments: Mapping[str, Any], *, wait_s: float = 0.0) -> Any:
        """Call a method and return its result. ``wait_s`` is the time that the server may take to wait.

        Raises a ChannelError that says whether the call can have had an effect, or ChatMigrated.
        """
        limit = TIMEOUT_S + wait_s
        try:
            async with asyncio.timeout(limit + CONNECT_S), self._client(limit) as client:
                answer = await client.post(f"{self._base}/{method}", json=dict(arguments))
                content = answer.content
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ChannelUnavailable(f"Telegram cannot be reached ({_name(error)})") from None
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise DeliveryUncertain(f"Telegram did not answer ({_name(error)})") from None
        return _result(method, answer.status_code, content)

    async def download(self, path: str) -> bytes:
        """Return a file by the path that ``getFile`` gave. Raises ChannelUnavailable if it cannot be read."""
        content = bytearray()
        try:
            async with (
                asyncio.timeout(4 * TIMEOUT_S),
                self._client(TIMEOUT_S) as client,
                client.stream("GET", f"{self._files}/{path}") as answer,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise ChannelUnavailable(f"Telegram answered {answer.status_code} for a file")
                async for chunk in answer.aiter_bytes():
                    content += chunk
                    if len(content) > MAX_DOWNLOAD_BYTES:
                        raise ChannelUnavailable("the file is larger than Telegram says")
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise ChannelUnavailable(f"a file was not sent completely ({_name(error)})") from None
        return bytes(content)

    def _client(self, timeout_s: float) -> httpx.AsyncClient:
        # A new connection each time: of a kept one that the server has closed, it is not known whether
        # the request was read.
        return httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            trust_env=False,
            verify=_trusted() if self._tls else False,
        )


def _result(method: str, status: int, content: bytes) -> Any:
    try:
        answer = parse_json(content) if len(content) <= MAX_ANSWER_BYTES else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise DeliveryUncertain(f"Telegram answered {status} to {method} without JSON")
    if answer.get("ok") is True:
        return answer.get("result")
    raise _error(method, status, answer)


def _error(method: str, status: int, answer: Mapping[str, Any]) -> ButlersError:
    code = answer.get("error_code")
    code = code if isinstance(code, int) else status
    description = str(answer.get("description", ""))[:200]
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    said = f"Telegram answered {code} to {method}: {description}"
    if isinstance(moved := parameters.get("migrate_to_chat_id"), int):
        migrated = ChatMigrated(said)
        migrated.new_id = moved
        return migrated
    if code in _UNAUTHORIZED:
        return CredentialRefused(
            "Telegram refuses the bot's token",
            hint="make a new token with @BotFather, then `butlers connect telegram`",
        )
    if code == _CONFLICT:
        return PollConflict(said)
    if code == _TOO_MANY:
        busy = ChannelBusy(said, response=description)
        busy.pause_s = _pause(parameters.get("retry_after"))
        return busy
    if code >= _SERVER_ERROR:
        return DeliveryUncertain(said, response=description)
    hint = "the person has blocked the bot or left the chat" if code == _FORBIDDEN else None
    return DeliveryRefused(said, hint=hint, response=description)


def _pause(seconds: Any) -> float:
    known = isinstance(seconds, int) and not isinstance(seconds, bool)
    return min(max(float(seconds), 1.0), LONGEST_PAUSE_S) if known else ChannelBusy.pause_s


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _name(error: BaseException) -> str:
    """Return the type of an error. Its text may contain the URL, and so the token."""
    return type(error).__name__
