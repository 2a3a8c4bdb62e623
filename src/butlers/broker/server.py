"""The broker's HTTP side: checks a request, forwards it with the real key, streams and meters the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import structlog
import uvicorn

from butlers.broker.audit import MAX_TEXT, BrokerAudit, Refusal
from butlers.broker.grants import (
    Estimate,
    Grant,
    LimitReached,
    SessionTokens,
    TokenRefused,
    TokenTerms,
)
from butlers.broker.ledger import Entry, Ledger
from butlers.broker.meter import Meter
from butlers.broker.providers import (
    PROVIDERS,
    ApiPath,
    Provider,
    key_headers,
    model_of,
    session_token,
)
from butlers.broker.upstream import ProviderUnavailable, Upstreams
from butlers.config.prices import PriceTable, load_prices
from butlers.config.settings import Settings
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.errors import ButlersError
from butlers.domain.session import Usage

log = structlog.get_logger()

LARGEST_BODY = 64 * 2**20
# Room that a running request holds. More than it will use, so that requests that run at the same time do
# not overspend together; once it has ended, what it really used counts instead.
LEAST_INPUT, BYTES_PER_HELD_TOKEN = 2_000, 2
MOST_OUTPUT = 8_000
# A limit is answered with a status that no CLI retries.
LIMIT_STATUS = 400
_DO_NOT_REPEAT = {"x-should-retry": "false"}  # understood by the SDKs of Anthropic and OpenAI
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS = frozenset({"host", "content-length", "accept-encoding", "authorization", "x-api-key"})
_NOT_FORWARDED = _HOP_BY_HOP | _OURS | {"x-goog-api-key", "cookie", "proxy-authorization"}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a CLI, checked and ready to be forwarded."""

    provider: Provider
    endpoint: ApiPath
    grant: Grant
    terms: TokenTerms
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    model: str | None
    document: Mapping[str, Any]


class RequestRefused(ButlersError):
    """The broker does not forward this request."""

    code = "broker_refused"
    status = 403


@dataclass(slots=True)
class Broker:
    ledger: Ledger
    grants: SessionTokens
    upstreams: Upstreams
    prices: PriceTable
    clock: Clock
    audit: BrokerAudit
    url: str = ""
    is_serving: bool = False

    @classmethod
    def of(cls, settings: Settings, *, debug: bool = False) -> Broker:
        """Return the broker of this home, with the proxy and certificates of its environment.

        ``debug`` records whole exchanges.
        """
        clock, ledger = SystemClock(), Ledger(settings.home)
        upstreams = Upstreams(clock, settings.environ)
        tokens, prices = SessionTokens(ledger, clock), load_prices(settings)
        audit = BrokerAudit(settings.home, debug=debug)
        return cls(ledger, tokens, upstreams, prices, clock, audit)

    def status(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "providers": self.upstreams.circuits(),
        }

    def base_url(self, provider: Provider) -> str:
        return f"{self.url}/{provider.name}"

    # -- one request ---------------------------------------------------------------------------

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return None
        provider, path = _provider_of(scope["path"])
        try:
            if scope["method"] == "HEAD":  # Claude Code looks whether anybody is there
                return await _reply(send, 200, b"")
            asked = await self._check(scope, provider, path, receive)
            await self._forward(asked, receive, send)
        except TokenRefused as error:
            await self._refuse(send, scope, 401, error)
        except LimitReached as error:
            await self._refuse(send, scope, LIMIT_STATUS, error)
        except RequestRefused as error:
            await self._refuse(send, scope, error.status, error)
        except ProviderUnavailable as error:
            headers = dict(_DO_NOT_REPEAT)
            if error.after_s and not provider.hides_pause:
                headers["retry-after"] = str(int(error.after_s) + 1)
            body = provider.error_body(error.status, error.message)
            await _reply(send, error.status, body, headers)

    async def _check(
        self, scope: Message, provider: Provider, path: str, receive: Receive
    ) -> Asked:
        headers = _headers_of(scope)
        if (host := headers.get("host", "").rpartition(":")[0]) not in ("127.0.0.1", "localhost"):
            raise RequestRefused(f"the broker is not at {host!r}")
        grant, terms = self.grants.find(session_token(headers))
        if grant.failure is not None:
            raise RequestRefused(grant.failure)
        if terms.provider != provider.name:
            raise RequestRefused(f"this session does not use {provider.name}")
        endpoint = provider.endpoint(scope["method"], path)
        if endpoint is None:
            raise RequestRefused(f"{scope['method']} {path} is not offered here")
        body = await _read_body(receive)
        document = _document(body)
        model = model_of(path, document)
        if endpoint.metered and not terms.allows(model):
            raise RequestRefused(f"this session may not use the model {model!r}")
        return Asked(
            provider,
            endpoint,
            grant,
            terms,
            scope["method"],
            path,
            _query(scope["query_string"].decode("latin-1")),
            headers,
            body,
            model,
            document,
        )

    async def _forward(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Forward the request; give it up, and its room, when the CLI hangs up."""
        watch = asyncio.create_task(_cancel_when_gone(receive, asyncio.current_task()))
        try:
            await self._exchange(asked, send)
        except asyncio.CancelledError:
            if not watch.done() or (task := asyncio.current_task()) is None:
                raise
            task.uncancel()
        finally:
            watch.cancel()

    async def _exchange(self, asked: Asked, send: Send) -> None:
        ticket = None
        if asked.endpoint.metered:
            ticket = await self.grants.admit(asked.grant, self._estimate(asked))
        try:
            body, hides_usage = _with_usage(asked)
            url, headers = await self._destination(asked)
            answer = await self.upstreams.send(asked.provider, asked.method, url, headers, body)
            if ticket is not None:
                asked.grant.note(answer.status_code, asked.provider.name)
            try:
                await self._stream(asked, answer, send, hides_usage=hides_usage)
            finally:
                await answer.aclose()
        except ProviderUnavailable as error:
            asked.grant.outage = error.message
            raise
        finally:
            if ticket is not None:
                self.grants.settle(ticket)

    async def _destination(self, asked: Asked) -> tuple[str, dict[str, str]]:
        """Return the provider's address and the headers with the real key, as its butler has them."""
        provider, resolve = asked.provider, asked.terms.credentials.resolve
        try:
            variable = provider.base_url_variable
            base = await resolve(variable, env=variable) or provider.default_upstream
            return base.rstrip("/") + asked.path + asked.query, await self._headers(asked)
        except RequestRefused:
            raise
        except Exception as error:  # the credential store failed, and the session with it
            log.exception("broker has no credential", butler=asked.terms.butler)
            asked.grant.failure = f"the key broker could not read the credential: {error}"
            failed = ProviderUnavailable(asked.grant.failure)
            raise failed from error

    async def _headers(self, asked: Asked) -> dict[str, str]:
        kept = {name: value for name, value in asked.headers.items() if name not in _NOT_FORWARDED}
        for credential in asked.provider.credentials:
            if key := await asked.terms.credentials.resolve(credential, env=credential):
                return {**kept, "accept-encoding": "identity", **key_headers(credential, key)}
        raise RequestRefused(
            f"there is no credential for {asked.provider.name}",
            hint=f"butlers secrets set {asked.provider.credentials[0]}",
        )

    async def _stream(
        self,
        asked: Asked,
        answer: httpx.Response,
        send: Send,
        *,
        hides_usage: bool,
    ) -> None:
        """Pass the answer on byte for byte. Its usage is in the ledger before its last byte leaves."""
        meter = Meter(asked.provider, answer.headers.get("content-type", ""), len(asked.body))
        drop = UsageEventFilter() if hides_usage else None
        recorded = not (asked.endpoint.metered and answer.is_success)
        heard = bytearray()  # for debugging
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status_code,
                    "headers": _kept(answer, asked.provider),
                }
            )
            async for chunk in answer.aiter_raw():
                meter.feed(chunk)
                if self.audit.debug and len(heard) < MAX_TEXT:
                    heard += chunk
                shown = chunk if drop is None else drop.without(chunk)
                if shown:
                    await send({"type": "http.response.body", "body": shown, "more_body": True})
            meter.end()
            if not recorded:
                recorded = True
                if not meter.is_complete:
                    asked.grant.note_cut(asked.provider.name)
                self._record(asked, answer.status_code, meter)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (httpx.TransportError, httpx.StreamError) as error:
            # The answer has begun: the server closes the connection of an answer that is not complete.
            log.warning("provider cut its answer", provider=asked.provider.name, error=str(error))
            if not recorded:
                asked.grant.note_cut(asked.provider.name)
        finally:
            if not recorded:  # the CLI was killed, or the provider cut the stream
                self._record(asked, answer.status_code, meter)
            facts = {"at": self.clock.now().isoformat(), "session": asked.terms.session}
            facts |= {"butler": asked.terms.butler, "path": asked.path}
            self.audit.exchanged(facts | {"status": answer.status_code}, asked.body, bytes(heard))

    def _record(self, asked: Asked, status: int, meter: Meter) -> None:
        usage, terms = meter.usage, asked.terms
        entry = Entry.of(
            usage,
            at=self.clock.now(),
            session=terms.session,
            butler=terms.butler,
            provider=asked.provider.name,
            model=asked.model or "",
            status=status,
            usd=self.prices.cost(asked.model, usage),
            estimated=not meter.is_reported,
        )
        asked.grant.used.add(entry)
        try:
            self.ledger.append(entry)
        except OSError as error:  # without the ledger no limit would hold: the session ends here
            log.error("broker cannot write its ledger", error=str(error))
            asked.grant.failure = f"the key broker cannot write its ledger: {error}"

    def _estimate(self, asked: Asked) -> Estimate:
        limit = asked.document.get("max_tokens") or asked.document.get("max_output_tokens")
        output = min(limit, MOST_OUTPUT) if isinstance(limit, int) else MOST_OUTPUT
        given = max(LEAST_INPUT, len(asked.body) // BYTES_PER_HELD_TOKEN)
        usage = Usage(input_tokens=given, output_tokens=output)
        return Estimate(given + output, self.prices.cost(asked.model, usage))

    async def _refuse(self, send: Send, scope: Message, status: int, error: ButlersError) -> None:
        provider, path = _provider_of(scope["path"])
        terms = None
        with contextlib.suppress(TokenRefused):
            terms = self.grants.find(session_token(_headers_of(scope)))[1]
        refusal = Refusal(
            at=self.clock.now().isoformat(),
            provider=provider.name,
            method=scope["method"],
            path=path,
            status=status,
            reason=error.message,
            session=terms.session if terms else None,
            butler=terms.butler if terms else None,
        )
        log.warning("broker refused a request", **asdict(refusal))
        self.audit.refused(refusal)
        await _reply(send, status, provider.error_body(status, error.message))


class UsageEventFilter:
    """Removes the usage event of a chat stream that the CLI did not ask for."""

    def __init__(self) -> None:
        self._rest = b""

    def without(self, chunk: bytes) -> bytes:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return b"".join(line + b"\n" for line in lines if not self._is_usage(line))

    @staticmethod
    def _is_usage(line: bytes) -> bool:
        if not line.startswith(b"data:") or b'"usage"' not in line:
            return False
        try:
            event = json.loads(line[5:])
        except (ValueError, RecursionError):
            return False
        return isinstance(event, Mapping) and event.get("choices") == []


def _headers_of(scope: Message) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _provider_of(path: str) -> tuple[Provider, str]:
    name, _, rest = path.lstrip("/").partition("/")
    return PROVIDERS.get(name) or PROVIDERS["openai"], f"/{rest}"


def _query(given: str) -> str:
    """Keep the query without a key: Gemini's clients may put one there."""
    kept = [part for part in given.split("&") if part and not part.startswith("key=")]
    return f"?{'&'.join(kept)}" if kept else ""


def _document(body: bytes) -> Mapping[str, Any]:
    if not body:
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        error = RequestRefused("the body is not a JSON object")
        error.status = 400
        raise error
    return found


def _with_usage(asked: Asked) -> tuple[bytes, bool]:
    """Ask a chat stream for its usage; say whether the CLI must not see it."""
    document = asked.document
    if not (asked.path.endswith("/chat/completions") and document.get("stream")):
        return asked.body, False
    options = document.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        return asked.body, False
    wanted = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
    return json.dumps({**document, "stream_options": wanted}).encode(), True


def _kept(answer: httpx.Response, provider: Provider) -> list[tuple[bytes, bytes]]:
    """Return the headers for the CLI. An error has been retried here already."""
    dropped = _HOP_BY_HOP | ({"retry-after"} if provider.hides_pause else set())
    kept = [
        (name.lower(), value)
        for name, value in answer.headers.raw
        if name.decode("latin-1").lower() not in dropped
    ]
    if answer.is_error:
        kept += [(name.encode(), value.encode()) for name, value in _DO_NOT_REPEAT.items()]
    return kept


async def _read_body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused("the client has gone")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            error = RequestRefused(f"the body has more than {LARGEST_BODY:,} bytes")
            error.status = 413
            raise error
        if not message.get("more_body"):
            return b"".join(parts)


async def _cancel_when_gone(receive: Receive, task: asyncio.Task[Any] | None) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


async def _reply(
    send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    shown = {"content-type": "application/json", "content-length": str(len(body))}
    shown |= headers or {}
    raw = [(name.encode(), value.encode()) for name, value in shown.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class _BrokerServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the process that hosts the broker


@asynccontextmanager
async def serving(broker: Broker, port: int = 0) -> AsyncIterator[Broker]:
    """Serve on loopback for the length of the block; running answers are cut at its end."""
    with contextlib.closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        broker.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            broker, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=75
        )
        server = _BrokerServer(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="broker")
        broker.is_serving = True
        task.add_done_callback(lambda _ended: setattr(broker, "is_serving", False))
        try:
            yield broker
        finally:
            server.should_exit = server.force_exit = True
            await task
            await broker.upstreams.close()
