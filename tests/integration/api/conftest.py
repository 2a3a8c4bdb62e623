"""The dashboard's application in the test's process, and a client that speaks to it as a browser does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest
from fastapi import FastAPI

from butlers.api.app import make_app
from butlers.api.guard import COOKIE
from butlers.api.sign_in import SignInStore
from butlers.config.files import write_once
from butlers.wire.tokens import FleetKey

ADDRESS = "http://127.0.0.1:40200"


@pytest.fixture
def store(home: Path) -> SignInStore:
    return SignInStore(home)


@pytest.fixture
def dashboard_app(home: Path, key: FleetKey) -> FastAPI:
    keys = home / "keys"
    keys.mkdir(parents=True, exist_ok=True)
    write_once(keys / "fleet.key", key.secret)  # the butlers of the test have this key
    return make_app(home, ZoneInfo("Europe/Berlin"))


@pytest.fixture
async def visitor(dashboard_app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is not signed in."""
    transport = httpx.ASGITransport(dashboard_app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield client


@pytest.fixture
async def browser(visitor: httpx.AsyncClient, store: SignInStore) -> httpx.AsyncClient:
    """A browser that is signed in; it sends the CSRF token as our pages do."""
    answer = await visitor.post("/sign-in", data={"link": store.make_link()})
    assert answer.status_code == 303
    signed_in = store.visitor_of_session(visitor.cookies[COOKIE])
    assert signed_in is not None
    visitor.headers["x-csrf-token"] = signed_in.csrf or ""
    return visitor
