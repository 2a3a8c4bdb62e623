"""The MCP client with which daemons, reflexes and commands call a butler's tools.

Each call is one stateless POST of protocol 2026-07-28: no handshake, no session. A quick call is answered in
JSON; a call that takes longer, or that reports progress, in an event stream whose last event is the answer.
The full client library takes more than a second to import, too long for a command
(docs/adr/0003-light-mcp-client.md).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from butlers.domain.caller import CallerKind
from butlers.domain.errors import (
    AnswerLost,
    ButlersError,
    InvalidArguments,
    NotAuthenticated,
    NotFound,
    PeerFailed,
    PeerUnavailable,
    error_from_wire,
)
from butlers.domain.trace import traceparent_headers
from butlers.wire.tokens import FleetKey

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol"
CONNECT_S = 10.0
_LINE_ENDS = re.compile(r"\r\n|\r|\n")  # of an event stream; JSON text may contain other ones
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class McpClient:
    def __init__(
        self, name: str, url: str, token: Callable[[], str], *, timeout_s: float = 30
    ) -> None:
        self.name = name
        self.url = url
        self._token = token
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        # Loading the certificate store takes longer than a call on loopback, which does not need it.
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            trust_env=False,
            verify=url.startswith("https:"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the tool's structured result, or raise the typed error that the tool raised."""
        params = {"name": tool, "arguments": dict(arguments or {})}
        result = await self._request("tools/call", params, tool, timeout_s)
        content = result.get("structuredContent")
        if result.get("isError"):
            raise _tool_error(self.name, tool, content, result)
        if isinstance(content, dict) and _is_wrapped(result, content):
            return content["result"]
        return content

    async def list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = (await self._request("tools/list", {}, None, None))["tools"]
        return tools

    async def _request(
        self, method: str, params: dict[str, Any], subject: str | None, timeout_s: float | None
    ) -> dict[str, Any]:
        meta = {
            f"{META}/protocolVersion": PROTOCOL,
            f"{META}/clientInfo": {"name": "butlers", "version": "1"},
            f"{META}/clientCapabilities": {},
        }
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
            "Mcp-Method": method,
            **traceparent_headers(),
        }
        if subject is not None:
            if not _TOOL_NAME.fullmatch(subject):
                raise NotFound(
                    f"there is no tool {subject!r}",
                    hint="a name consists of letters, digits, _ - .",
                )
            headers["Mcp-Name"] = subject
        body = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**params, "_meta": meta},
        }
        try:
            # A limit on the whole call: in a stream with keep-alives no single read times out.
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                answer = await self._http.post(self.url, json=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PeerUnavailable(f"{self.name} does not listen at {self.url}") from error
        except (ValueError, TypeError) as error:  # NaN, half a surrogate pair, an object
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        except (httpx.HTTPError, OSError) as error:
            raise AnswerLost(
                f"{self.name} did not answer at {self.url} ({type(error).__name__})"
            ) from error
        return self._read(answer)

    def _read(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise NotAuthenticated(
                f"{self.name} refused the token",
                hint="check that both sides use the same BUTLERS_HOME",
            )
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise PeerUnavailable(
                f"{self.name} is starting or stopping", hint="try again in a moment"
            )
        if answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise InvalidArguments(
                f"the arguments are too large for {self.name}", hint="send less in one call"
            )
        streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
        text = _last_event(answer.text) if streamed else answer.text
        if text is None:
            raise AnswerLost(f"{self.name} ended its stream at {self.url} without an answer")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise PeerFailed(f"{self.name} answered {answer.status_code} without JSON-RPC")
        if isinstance(failure := body.get("error"), dict):
            raise _protocol_error(self.name, failure)
        result = body.get("result")
        if not isinstance(result, dict):
            raise PeerFailed(f"{self.name} answered {answer.status_code} without a result")
        return result


def _last_event(stream: str) -> str | None:
    """Return the data of the last event, which the server writes as one line."""
    lines = reversed(_LINE_ENDS.split(stream))
    return next((line[5:] for line in lines if line.startswith("data:")), None)


def _is_wrapped(result: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    meta = result.get("_meta") or {}
    return bool((meta.get("fastmcp") or {}).get("wrap_result")) and set(content) == {"result"}


def _protocol_error(name: str, failure: Mapping[str, Any]) -> ButlersError:
    message = str(failure.get("message", failure))
    kind = InvalidArguments if failure.get("code") in (-32602, -32601) else PeerFailed
    return kind(f"{name}: {message}")


def _tool_error(name: str, tool: str, content: Any, result: Mapping[str, Any]) -> ButlersError:
    if isinstance(content, dict) and isinstance(content.get("error"), dict):
        error = content["error"]
        return error_from_wire(
            str(error.get("code", "error")),
            str(error.get("message", "")),
            error.get("hint"),
            bool(error.get("retryable")),
        )
    texts = [str(part.get("text", "")) for part in result.get("content", [])]
    return PeerFailed(f"{name}.{tool}: {' '.join(texts) or 'failed without a message'}")


class Peers:
    """Clients for the other butlers, with tokens that identify this butler."""

    def __init__(self, own_name: str, key: FleetKey) -> None:
        self._own_name = own_name
        self._key = key
        self._clients: dict[tuple[str, str], McpClient] = {}

    async def call(self, peer: str, url: str, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._client(peer, url).call(tool, arguments)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    def _client(self, peer: str, url: str) -> McpClient:
        if (peer, url) not in self._clients:
            self._clients[peer, url] = McpClient(
                peer, url, lambda: self._key.mint(CallerKind.PEER, self._own_name, peer)
            )
        return self._clients[peer, url]
