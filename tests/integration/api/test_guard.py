"""The guard of the dashboard: attacks on sign-in, origin, host, CSRF token and scopes."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest
from fastapi.routing import APIRoute

from butlers.api import json_api
from butlers.api.app import PAGES, make_app
from butlers.api.guard import ATTEMPTS_PER_MINUTE, COOKIE, PUBLIC, REQUESTS_PER_10_S
from butlers.api.sign_in import Scope, SignInStore


def _routes() -> list[tuple[str, str]]:
    values = {
        "butler": "health",
        "name": "health",
        "module": "health",
        "table": "measurements",
        "tool": "status",
        "action": "replay",
    }
    prefixed = [("", page.router) for page in PAGES] + [("/api", json_api.router)]
    found = [("GET", "/api/openapi.json")]
    for prefix, router in prefixed:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            path = prefix + route.path
            for part in route.param_convertors:
                path = path.replace(
                    f"{{{part}}}", values.get(part, "01a1ec66-1abc-7e0c-b8ce-5375d0ead22d")
                )
            found += [(method, path) for method in route.methods]
    return found


async def test_every_route_but_health_and_sign_in_needs_a_sign_in(
    visitor: httpx.AsyncClient,
) -> None:
    """Attack: open each route without a session. A page leads to the sign-in, the rest is refused."""
    closed = [(m, path) for m, path in _routes() if not path.startswith(PUBLIC)]
    assert len(closed) > 30
    for method, path in closed:
        answer = await visitor.request(method, path)
        if method == "GET" and not path.startswith("/api/"):
            assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), path
        else:
            assert answer.status_code == 401, (method, path)


async def test_answers_carry_a_strict_content_policy(browser: httpx.AsyncClient) -> None:
    for path in ("/settings", "/sign-in", "/static/app.css", "/api/none", "/nowhere"):
        policy = (await browser.get(path)).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy


async def test_session_cookie_is_hidden_from_scripts_and_other_sites(
    visitor: httpx.AsyncClient, store: SignInStore
) -> None:
    answer = await visitor.post("/sign-in", data={"link": store.make_link()})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


async def test_link_is_refused_the_second_time(
    visitor: httpx.AsyncClient, store: SignInStore
) -> None:
    """Attack: use a one-time link that somebody saw over the shoulder."""
    link = store.make_link()
    assert (await visitor.post("/sign-in", data={"link": link})).status_code == 303
    visitor.cookies.clear()
    assert (await visitor.post("/sign-in", data={"link": link})).status_code == 403
    assert COOKIE not in visitor.cookies


async def test_stolen_cookie_is_worthless_after_sign_out(browser: httpx.AsyncClient) -> None:
    """Attack: keep the cookie of a browser that signs out."""
    stolen = browser.cookies[COOKIE]
    assert (await browser.get("/settings")).status_code == 200
    assert (await browser.post("/sign-out", data={"everywhere": "true"})).status_code == 200
    browser.cookies.clear()
    browser.cookies.set(COOKIE, stolen)
    assert (await browser.get("/settings")).status_code == 303


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:40200", "", "[::2]"])
async def test_foreign_host_is_refused(browser: httpx.AsyncClient, host: str) -> None:
    """Attack: DNS rebinding, a name of the attacker that resolves to this machine."""
    answer = await browser.get("/settings", headers={"host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_request_of_another_site_is_refused(
    browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """Attack: a form on another page posts to the dashboard with the person's cookie."""
    for path in ("/chat", "/sign-in", "/sign-out"):
        assert (await browser.post(path, headers=headers)).status_code == 403


async def test_write_without_the_csrf_token_is_refused(browser: httpx.AsyncClient) -> None:
    """Attack: a forged form that gets past the origin check."""
    for token in ("", "0" * 64):
        answer = await browser.post("/sign-out", headers={"x-csrf-token": token})
        assert answer.status_code == 403
    assert (await browser.get("/settings")).status_code == 200


async def test_token_of_the_read_scope_may_not_write(
    visitor: httpx.AsyncClient, store: SignInStore
) -> None:
    """Attack: a program with a token for reading calls a tool that writes."""
    reads = {"authorization": f"Bearer {store.make_token('r', frozenset({Scope.READ}))}"}
    writes = {"authorization": f"Bearer {store.make_token('w', frozenset(Scope))}"}
    call = "/api/butlers/health/tools/measurement_log"
    assert (await visitor.get("/api/butlers", headers=reads)).status_code == 200
    assert (await visitor.post(call, json={}, headers=reads)).status_code == 403
    assert (await visitor.post(call, json={}, headers=writes)).status_code == 503  # no fleet runs
    assert (
        await visitor.get("/api/butlers", headers={"authorization": "Bearer x"})
    ).status_code == 401


async def test_guessing_links_and_flooding_are_slowed_down(
    visitor: httpx.AsyncClient, store: SignInStore
) -> None:
    """Attack: try tokens until one fits; send more requests than a person could."""
    wrong = {"authorization": "Bearer wrong"}
    for _ in range(ATTEMPTS_PER_MINUTE):
        assert (await visitor.get("/api/butlers", headers=wrong)).status_code == 401
    answer = await visitor.post("/sign-in", data={"link": store.make_link()})
    assert answer.status_code == 429
    statuses = {(await visitor.get("/health")).status_code for _ in range(REQUESTS_PER_10_S)}
    assert statuses == {200, 429}


async def test_large_and_unsized_bodies_are_refused(browser: httpx.AsyncClient) -> None:
    """Attack: fill the memory with a body that has no end."""
    huge = {"content-length": str(10**12)}
    assert (await browser.post("/chat", headers=huge)).status_code == 413

    async def endless() -> object:
        yield b"x"

    assert (await browser.post("/chat", content=endless())).status_code == 413


async def test_page_of_a_fleet_that_is_gone_says_so(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/messages")
    assert answer.status_code == 503
    assert "no butler" in answer.text
    home = await browser.get("/")
    assert home.status_code == 200
    assert "This part is not available" in home.text


async def test_public_name_needs_configuration_and_https(home: Path, store: SignInStore) -> None:
    """A configured name is served over HTTPS only, with a warning and a cookie for HTTPS only."""
    app = make_app(home, ZoneInfo("UTC"), hosts=("butlers.example.org",))
    transport = httpx.ASGITransport(app)
    plain = httpx.AsyncClient(transport=transport, base_url="http://butlers.example.org")
    other = httpx.AsyncClient(transport=transport, base_url="https://other.example.org")
    secure = httpx.AsyncClient(transport=transport, base_url="https://butlers.example.org")
    async with plain, other, secure:
        assert (await plain.get("/sign-in")).status_code == 421
        assert (await other.get("/sign-in")).status_code == 421
        assert "signing in over the internet" in (await secure.get("/sign-in")).text
        answer = await secure.post("/sign-in", data={"link": store.make_link()})
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "Configured: butlers.example.org" in (await secure.get("/settings/public")).text
