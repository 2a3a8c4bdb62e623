"""OAuth for accounts of the owner: signing in with a browser, and access tokens from a refresh token.

Signing in uses an authorization code with PKCE and a redirect to loopback.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from butlers.domain.errors import ChannelUnavailable, CredentialRefused
from butlers.domain.redaction import redactor

TIMEOUT_S = 15.0
EARLY_S = 60.0  # a token is renewed this long before its end
DEFAULT_LIFE_S = 300.0
MAX_REQUEST = 16_384
GOOGLE_AUTHORIZE_URL = "https://accounts.google.com/o/oauth2/v2/auth"
GOOGLE_TOKEN_URL = "https://oauth2.googleapis.com/token"
_PAGE = b"<!doctype html><title>Butlers</title><p>You can close this window and return to the terminal.</p>"


@dataclass(frozen=True, slots=True)
class OAuthPreset:
    """Addresses of a provider for signing in with a browser."""

    authorize_url: str
    token_url: str
    scope: str


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A registered client of a provider. The secret of an installed program is not confidential."""

    token_url: str
    client_id: str
    client_secret: str | None = None
    command: str = "butlers connect"  # with which the owner signs in again


class AccessTokens:
    """Access tokens of one account: fetched with its refresh token, kept until shortly before their end."""

    def __init__(self) -> None:
        self._token: tuple[str, str, float] | None = None  # refresh token, access token, end

    async def current(self, client: OAuthClient, refresh_token: str) -> str:
        """Return an access token. Raises CredentialRefused if the provider does not renew it."""
        now = time.monotonic()
        if self._token is None or self._token[0] != refresh_token or self._token[2] < now:
            token, life_s = await _renew(client, refresh_token)
            self._token = (refresh_token, token, now + life_s - EARLY_S)
        return self._token[1]

    def forget(self) -> None:
        """Fetch a new token next time, after the server has refused the current one."""
        self._token = None


async def _renew(client: OAuthClient, refresh_token: str) -> tuple[str, float]:
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": client.client_id,
        **({"client_secret": client.client_secret} if client.client_secret else {}),
    }
    answer = await post_form(client.token_url, form, client.command)
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise CredentialRefused("the provider gave no access token")
    redactor.register(token)
    life_s = answer.get("expires_in")
    return token, float(life_s) if isinstance(life_s, int | float) else DEFAULT_LIFE_S


async def post_form(
    url: str, form: dict[str, str], command: str = "butlers connect"
) -> dict[str, Any]:
    """Ask a token endpoint. Raises CredentialRefused for a refused grant."""
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            answer = await client.post(url, data=form)
            found = answer.json() if answer.content else {}
    except (httpx.HTTPError, ValueError) as error:
        raise ChannelUnavailable(
            f"the provider's token address does not answer ({type(error).__name__})"
        ) from None
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise ChannelUnavailable(f"the provider's token address answered {answer.status_code}")
    if not answer.is_success or not isinstance(found, dict):
        reason = found.get("error", "") if isinstance(found, dict) else ""
        raise CredentialRefused(
            f"the provider refused the token ({answer.status_code} {str(reason)[:80]})".strip(),
            hint=f"run `{command}` again to sign in",
        )
    return found


async def sign_in(
    provider: OAuthPreset,
    client_id: str,
    client_secret: str | None,
    address: str,
    show: Callable[[str], None],
    timeout_s: float = 300.0,
) -> str:
    """Let the person sign in with a browser and return the refresh token.

    ``show`` gets the address that the person opens.
    """
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(24)
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda reader, writer: _receive(reader, writer, state, answer), "127.0.0.1", 0
    )
    redirect = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        show(_authorize_url(provider, client_id, address, redirect, state, verifier))
        code = await asyncio.wait_for(answer, timeout_s)
    except TimeoutError:
        raise CredentialRefused(f"nobody signed in within {timeout_s:.0f} seconds") from None
    finally:
        server.close()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": client_id,
        "code_verifier": verifier,
        **({"client_secret": client_secret} if client_secret else {}),
    }
    token = (await post_form(provider.token_url, form)).get("refresh_token")
    if not isinstance(token, str) or not token:
        raise CredentialRefused("the provider gave no refresh token")
    redactor.register(token)
    return token


def _authorize_url(
    provider: OAuthPreset, client_id: str, address: str, redirect: str, state: str, verifier: str
) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect,
        "scope": provider.scope,
        "state": state,
        "code_challenge": challenge.decode(),
        "code_challenge_method": "S256",
        "login_hint": address,
        "access_type": "offline",
        "prompt": "consent",
    }
    return f"{provider.authorize_url}?{urlencode(query)}"


async def _receive(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    state: str,
    answer: asyncio.Future[str],
) -> None:
    """Take the redirect of the browser. A request with another state is ignored."""
    try:
        line = (await asyncio.wait_for(reader.readline(), 10))[:MAX_REQUEST].decode("latin-1")
        query = parse_qs(urlsplit(line.split(" ")[1] if " " in line else "").query)
        given = query.get("state", [""])[0]
        if hmac.compare_digest(given.encode(), state.encode()) and not answer.done():
            if "code" in query:
                answer.set_result(query["code"][0])
            else:
                reason = query.get("error", ["no code"])[0][:80]
                answer.set_exception(CredentialRefused(f"the provider answered: {reason}"))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(_PAGE)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + _PAGE)
        await writer.drain()
    except (OSError, TimeoutError, ValueError):
        return  # the browser has gone, or it is none
    finally:
        writer.close()
