"""The guard of the dashboard: host, origin, sign-in, CSRF token, rate limit and security headers.

It stands before every route, so that a new page cannot forget it. Only ``PUBLIC`` paths need no sign-in.
"""

from __future__ import annotations

import hmac
import time
from collections import deque
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from butlers.api.sign_in import Scope as Right
from butlers.api.sign_in import SignInStore, Visitor

COOKIE = "butlers_dashboard"
CSRF_HEADER = "x-csrf-token"
PUBLIC = ("/health", "/sign-in", "/static/")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 25 * 1024 * 1024
REQUESTS_PER_10_S = 400
ATTEMPTS_PER_MINUTE = 20

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none';"
        " base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "x-frame-options": "DENY",
}


class RequestRate:
    """At most ``limit`` events within ``seconds``."""

    def __init__(
        self, limit: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._seconds, self._clock = limit, seconds, clock
        self._events: deque[float] = deque()

    @property
    def is_full(self) -> bool:
        while self._events and self._events[0] < self._clock() - self._seconds:
            self._events.popleft()
        return len(self._events) >= self._limit

    def count(self) -> None:
        self._events.append(self._clock())


class Guard:
    """ASGI middleware. Sets ``request.state.visitor`` for the routes behind it."""

    def __init__(self, app: ASGIApp, store: SignInStore, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._store = store
        self._hosts = frozenset((*LOOPBACK, *hosts))
        self._public = frozenset(hosts)
        self._requests = RequestRate(REQUESTS_PER_10_S, 10)
        self._attempts = RequestRate(ATTEMPTS_PER_MINUTE, 60)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._refuse(request)
        if refused is not None:
            await refused(scope, receive, _with_headers(send, scope["path"]))
            return
        await self._app(scope, receive, _with_headers(send, scope["path"]))

    def _refuse(self, request: Request) -> Response | None:
        """Return the answer to a request that may not pass, or None."""
        if _host_name(request.headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("this host name is not ours", 421)
        if is_public(request, self._public) and request.url.scheme != "https":
            return PlainTextResponse("this host name is served over HTTPS only", 421)
        if self._requests.is_full:
            return _error(request, 429, "too many requests", {"retry-after": "10"})
        self._requests.count()
        if _is_too_large(request.headers):
            return _error(request, 413, "the request is too large")
        if request.method not in SAFE_METHODS and not self._is_same_origin(request.headers):
            return _error(request, 403, "a request from another site is refused")
        return self._refuse_visitor(request)

    def _refuse_visitor(self, request: Request) -> Response | None:
        path = request.url.path
        if path.startswith(PUBLIC):
            if path == "/sign-in" and request.method == "POST":
                if self._attempts.is_full:
                    return _error(request, 429, "too many attempts", {"retry-after": "60"})
                self._attempts.count()
            return None
        visitor = self._visitor(request)
        if visitor is None:
            if not path.startswith("/api/") and request.method == "GET":
                return RedirectResponse("/sign-in", 303)
            return _error(request, 401, "sign in first")
        if request.method in SAFE_METHODS:
            right = Right.READ
        else:
            right = Right.WRITE
            sent = request.headers.get(CSRF_HEADER, "")
            if visitor.csrf and not hmac.compare_digest(sent.encode(), visitor.csrf.encode()):
                return _error(request, 403, "the page is out of date; load it again")
        if not visitor.may(right):
            return _error(request, 403, f"this token has not the scope {right!s}")
        request.state.visitor = visitor
        return None

    def _visitor(self, request: Request) -> Visitor | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            visitor = self._store.visitor_of_token(token.strip())
            if visitor is None:
                self._attempts.count()
            return visitor
        secret = session_secret(request)
        return self._store.visitor_of_session(secret) if secret else None

    def _is_same_origin(self, headers: Headers) -> bool:
        """Return whether a browser says that the request comes from a page of ours.

        A program sends neither header; it needs a bearer token, which a browser does not add by itself.
        """
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or urlsplit(origin).netloc == headers.get("host")


def session_secret(request: Request) -> str | None:
    cookie: SimpleCookie = SimpleCookie()
    try:
        cookie.load(request.headers.get("cookie", ""))
    except CookieError:
        return None
    found = cookie.get(COOKIE)
    return found.value if found else None


def is_public(request: Request, hosts: Collection[str]) -> bool:
    """Return whether the request came for a public name, through the reverse proxy."""
    return _host_name(request.headers.get("host", "")) in hosts


def _host_name(host: str) -> str:
    return host if host.endswith("]") else host.rsplit(":", 1)[0]


def _is_too_large(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    chunked = "chunked" in headers.get("transfer-encoding", "")
    return chunked or not length.isdigit() or int(length) > MAX_BODY


def _error(
    request: Request, status: int, message: str, headers: dict[str, str] | None = None
) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": {"message": message}}, status, headers)
    return PlainTextResponse(message, status, headers)


def _with_headers(send: Send, path: str) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(SECURITY_HEADERS)
            if not path.startswith("/static/"):
                headers["cache-control"] = "no-store"
            message["headers"] = [
                *message.get("headers", ()),
                *((key.encode(), value.encode()) for key, value in headers.items()),
            ]
        await send(message)

    return add
