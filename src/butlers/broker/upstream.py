"""Requests to the providers: one client for all, retries before the first byte, and shared pauses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx
import structlog

from butlers.broker.providers import Provider
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError

log = structlog.get_logger()

CONNECT_S, SILENCE_S = 10.0, 600.0
ATTEMPTS = 4
FIRST_DELAY_S = 0.5
LONGEST_PAUSE_S = 20.0  # a longer one is the caller's to wait for
OPEN_AFTER, OPEN_S = 5, 30.0  # failures in a row until the provider is left alone, and for how long
_PAUSED = frozenset({429, 529, 503})
_FAILED = frozenset({500, 502, 504})
_NOT_PROXIED = ("all://127.0.0.1", "all://localhost", "all://[::1]")


class ProviderUnavailable(ButlersError):
    """The model provider does not answer."""

    code = "broker_provider_unavailable"
    retryable = True
    status = 503
    after_s: float | None = None


class ProviderPaused(ProviderUnavailable):
    """The model provider has asked for a pause."""

    code = "broker_provider_paused"
    status = 429


@dataclass(slots=True)
class Circuit:
    """Knowledge about one provider that all sessions share."""

    failures: int = 0
    paused_until: float = 0.0  # by the monotonic clock
    reason: str = ""

    def as_dict(self, now: float) -> dict[str, Any]:
        paused = max(0.0, self.paused_until - now)
        state = "paused" if paused else "failing" if self.failures else "ok"
        return {"state": state, "paused_s": round(paused, 1), "reason": self.reason or None}


@dataclass(slots=True)
class Upstreams:
    """Connections to the providers, by the proxy and the certificates that the environment names."""

    clock: Clock
    environ: Mapping[str, str]
    _circuits: dict[str, Circuit] = field(default_factory=dict)
    _client: httpx.AsyncClient | None = None

    def circuits(self) -> dict[str, dict[str, Any]]:
        now = self.clock.monotonic()
        return {name: circuit.as_dict(now) for name, circuit in sorted(self._circuits.items())}

    def pause_s(self, provider: str) -> float | None:
        """Return how long the provider is to be left alone; None: not at all."""
        circuit = self._circuits.get(provider)
        left = 0.0 if circuit is None else circuit.paused_until - self.clock.monotonic()
        return left if left > 0 else None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def send(
        self, provider: Provider, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        """Return an answer whose body is still to be streamed.

        Before its first byte a request has no effect that a repeat would double, so it is sent
        again after a failed connection, a pause the provider asks for, or a gateway's error.
        """
        circuit = self._circuits.setdefault(provider.name, Circuit())
        delay = FIRST_DELAY_S
        for left in range(ATTEMPTS - 1, -1, -1):
            await self._wait(provider, circuit)
            try:
                request = self._open().build_request(
                    method, url, headers=dict(headers), content=body
                )
                answer = await self._open().send(request, stream=True)
            except (httpx.TransportError, OSError) as error:
                self._failed(circuit, f"{type(error).__name__}: {error}")
                if not left:
                    raise ProviderUnavailable(
                        f"{provider.name} cannot be reached ({type(error).__name__})",
                        hint="check the network, or the base URL that is set for it",
                    ) from error
                await asyncio.sleep(delay)
            else:
                pause = self._judge(circuit, answer, delay)
                if pause is None or pause > LONGEST_PAUSE_S or not left:
                    return answer
                await answer.aclose()
                await asyncio.sleep(pause)
            delay *= 2
        raise AssertionError("the last attempt returns or raises")

    async def _wait(self, provider: Provider, circuit: Circuit) -> None:
        """Hold the request back while a pause that another session met lasts."""
        left = circuit.paused_until - self.clock.monotonic()
        if left > LONGEST_PAUSE_S:
            error = ProviderPaused(f"{provider.name} is paused: {circuit.reason}")
            error.after_s = left
            raise error
        if left > 0:
            await asyncio.sleep(left)

    def _judge(self, circuit: Circuit, answer: httpx.Response, delay: float) -> float | None:
        """Return how long to wait before the request is sent again; None: the answer stands."""
        status = answer.status_code
        if status not in _PAUSED | _FAILED:
            circuit.failures, circuit.paused_until, circuit.reason = 0, 0.0, ""
            return None
        if status in _FAILED:
            self._failed(circuit, f"HTTP {status}")
            return delay
        pause = _retry_after(answer, self.clock.now()) or delay
        circuit.paused_until = max(circuit.paused_until, self.clock.monotonic() + pause)
        circuit.reason = f"HTTP {status}"
        return pause

    def _failed(self, circuit: Circuit, why: str) -> None:
        circuit.failures += 1
        circuit.reason = why
        if circuit.failures >= OPEN_AFTER:
            log.warning("model provider is left alone", seconds=OPEN_S, reason=why)
            circuit.failures = 0
            circuit.paused_until = self.clock.monotonic() + OPEN_S

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            proxy = self._variable("HTTPS_PROXY") or self._variable("HTTP_PROXY")
            mounts: dict[str, httpx.AsyncHTTPTransport | None] = {}
            if proxy:
                mounts = dict.fromkeys((*_NOT_PROXIED, *self._direct()))
                mounts["all://"] = httpx.AsyncHTTPTransport(proxy=proxy, verify=self._tls())
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=200, max_keepalive_connections=100),
                follow_redirects=False,
                trust_env=False,
                verify=self._tls(),
                mounts=mounts,
            )
        return self._client

    def _direct(self) -> list[str]:
        """Return the hosts of NO_PROXY as patterns: a name with all below it, an address, or all."""
        names = (one.strip().lstrip(".") for one in (self._variable("NO_PROXY") or "").split(","))
        return [_pattern(name) for name in names if name and "/" not in name]

    def _variable(self, name: str) -> str | None:
        return self.environ.get(name) or self.environ.get(name.lower()) or None

    def _tls(self) -> ssl.SSLContext:
        authority = self.environ.get("SSL_CERT_FILE") or self.environ.get("NODE_EXTRA_CA_CERTS")
        return _tls_context(authority or "")


@cache
def _tls_context(authority: str) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    if authority:
        context.load_verify_locations(cafile=authority)
    return context


def _pattern(name: str) -> str:
    if name == "*":
        return "all://*"
    host, _, port = name.partition(":")
    is_address = host.replace(".", "").isdigit()
    return f"all://{'' if is_address else '*'}{host}{f':{port}' if port else ''}"


def _retry_after(answer: httpx.Response, now: datetime) -> float | None:
    """Return the pause that the provider asks for: seconds, or the date of its end."""
    given = answer.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(given))
    with suppress(ValueError):
        until = parsedate_to_datetime(given)
        return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())
    return None
