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
import secrets
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

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
from butlers.wire.http import (
    CONNECT_S,
    SERVICE_UNAVAILABLE,
    TOO_LARGE,
    UNAUTHORIZED,
    ConnectFailed,
    HttpAnswer,
    HttpClient,
    HttpFailed,
)
from butlers.wire.tokens import IDENTITY, FleetCredential, FleetKey

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol"
MAX_IDENTITY = 4096  # bytes of a server's proof
_LINE_ENDS = re.compile(r"\r\n|\r|\n")  # of an event stream; JSON text may contain other ones
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class McpClient:
    def __init__(
        self,
        name: str,
        url: str,
        token: Callable[[], str] | FleetCredential,
        *,
        timeout_s: float = 30,
    ) -> None:
        """``token``: of a session, or the credential of a caller that has the fleet's key."""
        self.name = name
        self.url = url
        self._credential = token
        self._instance: str | None = None  # of the server, once it has proved to have the key
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._http = HttpClient(url)
        parts = urlsplit(url)
        self._target = parts.path + (f"?{parts.query}" if parts.query else "")

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
        await self._http.close()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the tool's result, structured if it is, or raise the typed error that the tool raised."""
        params = {"name": tool, "arguments": dict(arguments or {})}
        result = await self._request("tools/call", params, tool, timeout_s)
        if result.get("isError"):
            raise _tool_error(self.name, tool, result.get("structuredContent"), result)
        return tool_value(result)

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
            written = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            content = written.encode()
        except (ValueError, TypeError) as error:  # NaN, half a surrogate pair, an object
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        try:
            # A limit on the whole call: in a stream with keep-alives no single read times out.
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                answer = await self._post(content, headers)
        except ConnectFailed as error:
            raise PeerUnavailable(f"{self.name} does not listen at {self.url}") from error
        except (HttpFailed, OSError) as error:
            raise AnswerLost(
                f"{self.name} did not answer at {self.url} ({_reason(error)})"
            ) from error
        return self._read(answer)

    async def _post(self, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        """Send the request; once more if the server was restarted since it proved its identity."""
        known = self._instance is not None
        sent = headers | {"Authorization": f"Bearer {await self.bearer()}"}
        answer = await self._http.post(self._target, sent, body)
        if answer.status != UNAUTHORIZED or not known:
            return answer
        self._instance = None
        sent = headers | {"Authorization": f"Bearer {await self.bearer()}"}
        return await self._http.post(self._target, sent, body)

    async def bearer(self) -> str:
        """Return a token for the server, which has proved before that it has the fleet's key."""
        if not isinstance(self._credential, FleetCredential):
            return self._credential()
        if self._instance is None:
            self._instance = await self._authenticate(self._credential)
        return self._credential.token(self._instance)

    async def _authenticate(self, credential: FleetCredential) -> str:
        """Return the server's instance; raise NotAuthenticated if it cannot prove to have the key."""
        nonce = secrets.token_hex(16)
        async with asyncio.timeout(CONNECT_S):
            answer = await self._http.get(f"{IDENTITY}?nonce={nonce}")
        if answer.status == SERVICE_UNAVAILABLE:
            raise PeerUnavailable(
                f"{self.name} is starting or stopping", hint="try again in a moment"
            )
        try:
            said = answer.json() if len(answer.content) < MAX_IDENTITY else None
        except (ValueError, RecursionError):
            said = None
        return credential.instance_of(said, nonce, self._http.port)

    def _read(self, answer: HttpAnswer) -> dict[str, Any]:
        if answer.status == UNAUTHORIZED:
            raise NotAuthenticated(
                f"{self.name} refused the token",
                hint="check that both sides use the same BUTLERS_HOME",
            )
        if answer.status == SERVICE_UNAVAILABLE:
            raise PeerUnavailable(
                f"{self.name} is starting or stopping", hint="try again in a moment"
            )
        if answer.status == TOO_LARGE:
            raise InvalidArguments(
                f"the arguments are too large for {self.name}", hint="send less in one call"
            )
        text = _last_event(answer.text) if answer.is_stream else answer.text
        if text is None:
            raise AnswerLost(f"{self.name} ended its stream at {self.url} without an answer")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise PeerFailed(f"{self.name} answered {answer.status} without JSON-RPC")
        if isinstance(failure := body.get("error"), dict):
            raise _protocol_error(self.name, failure)
        result = body.get("result")
        if not isinstance(result, dict):
            raise PeerFailed(f"{self.name} answered {answer.status} without a result")
        return result


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, HttpFailed) else type(error).__name__


def _last_event(stream: str) -> str | None:
    """Return the data of the last event, which the server writes as one line."""
    lines = reversed(_LINE_ENDS.split(stream))
    return next((line[5:] for line in lines if line.startswith("data:")), None)


def tool_value(result: Mapping[str, Any]) -> Any:
    """Return the value of a tool's answer: structured, else its text, else its parts; None if empty."""
    content = result.get("structuredContent")
    if isinstance(content, dict) and _is_wrapped(result, content):
        return content["result"]
    parts = result.get("content") or []
    if content is not None or not parts:
        return content
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(str(part.get("text", "")) for part in parts)
    return parts


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

    async def list_tools(self, peer: str, url: str) -> list[dict[str, Any]]:
        return await self._client(peer, url).list_tools()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    def _client(self, peer: str, url: str) -> McpClient:
        if (peer, url) not in self._clients:
            credential = FleetCredential(self._key, CallerKind.PEER, self._own_name, peer)
            self._clients[peer, url] = McpClient(peer, url, credential)
        return self._clients[peer, url]
