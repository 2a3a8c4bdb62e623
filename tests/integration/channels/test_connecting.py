"""Connecting a channel: pairing by code, signing in with a browser, presets and the changed configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from butlers.channels.email.config import MailAccount
from butlers.channels.email.oauth import LoginSource
from butlers.channels.email.presets import PRESETS, preset_for, preset_named
from butlers.channels.telegram.api import BotApi
from butlers.channels.telegram.pairing import Pairing, PairingFailed
from butlers.config.overrides import set_table
from butlers.domain.clock import SystemClock
from butlers.domain.errors import ConfigSyntaxError, CredentialRefused
from butlers.wire.oauth import sign_in
from support.bot_api import TOKEN, BotApiServer
from support.oauth_provider import OAuthProvider

OWNER, STRANGER = 7, 8


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    running = OAuthProvider()
    yield running
    running.close()


# -- Telegram -----------------------------------------------------------------------------------------


def pairing(server: BotApiServer, code: str = "123456") -> Pairing:
    return Pairing(BotApi(TOKEN, server.url), SystemClock(), code)


async def test_code_pairs_its_sender_and_the_bot_answers(bot_api: BotApiServer) -> None:
    bot_api.says(STRANGER, "hello")
    bot_api.says(STRANGER, "111111")
    bot_api.says(OWNER, "/start 123456")
    found = await pairing(bot_api).wait(20)
    assert (found.user, found.chat) == (OWNER, OWNER)
    assert found.message_id == f"{OWNER}:{bot_api.chats[OWNER].sent[0]['message_id']}"
    assert bot_api.confirmed == 103, "the fleet does not get the code as a message"


async def test_each_code_is_new() -> None:
    api = BotApi(TOKEN, "http://127.0.0.1:1")
    codes = {Pairing(api, SystemClock()).code for _ in range(20)}
    assert len(codes) > 15
    assert all(len(code) == 6 and code.isdecimal() for code in codes)


async def test_after_five_guesses_even_the_right_code_of_that_sender_does_not_count(
    bot_api: BotApiServer,
) -> None:
    for guess in range(5):
        bot_api.says(STRANGER, f"00000{guess}")
    bot_api.says(STRANGER, "123456")
    bot_api.says(OWNER, "123456")
    assert (await pairing(bot_api).wait(20)).user == OWNER


async def test_many_guesses_end_the_pairing(bot_api: BotApiServer) -> None:
    for guess in range(20):
        bot_api.says(100 + guess, f"9999{guess:02}")
    with pytest.raises(PairingFailed, match="20 wrong codes"):
        await pairing(bot_api).wait(20)


async def test_code_in_a_group_does_not_count_and_time_runs_out(bot_api: BotApiServer) -> None:
    bot_api.says(OWNER, "123456", chat=-5)
    with pytest.raises(PairingFailed, match="did not arrive"):
        await pairing(bot_api).wait(0.5)


# -- email --------------------------------------------------------------------------------------------


async def _sign_in(provider: OAuthProvider, **changes: str) -> str:
    shown: asyncio.Queue[str] = asyncio.Queue()
    signing = asyncio.create_task(
        sign_in(provider.preset, "client", "s3cret", "me@example.org", shown.put_nowait, 20)
    )
    redirect = provider.authorize(await shown.get(), **changes)
    async with httpx.AsyncClient(trust_env=False) as browser:
        forged = await browser.get(redirect.split("?")[0], params={"code": "x", "state": "forged"})
        assert forged.status_code == 200
        await browser.get(redirect)
    return await signing


async def test_browser_signs_in_with_a_loopback_redirect_and_pkce(provider: OAuthProvider) -> None:
    assert await _sign_in(provider) == "refresh-1"
    (form,) = provider.forms
    assert form["client_secret"] == "s3cret"
    assert len(form["code_verifier"]) >= 43


async def test_code_of_another_sign_in_is_refused(provider: OAuthProvider) -> None:
    with pytest.raises(CredentialRefused, match="invalid_grant"):
        await _sign_in(provider, code="code-of-somebody-else")


async def test_access_token_is_renewed_and_a_revoked_one_refused(provider: OAuthProvider) -> None:
    stored = "refresh-1"

    async def secret(_name: str) -> str:
        return stored

    account = MailAccount(
        address="me@example.org",
        secret="M",
        imap_host="x",
        oauth={"client_id": "client", "token_url": f"{provider.url}/token"},  # type: ignore[arg-type]
    )
    logins = LoginSource(account, secret)
    first, again = await logins.current(), await logins.current()
    assert (first, first.is_token, provider.issued) == (again, True, 1)
    assert first.xoauth2 == "user=me@example.org\x01auth=Bearer access-1\x01\x01"
    stored = "refresh-2"
    with pytest.raises(CredentialRefused, match="invalid_grant") as refused:
        await logins.current()
    assert "butlers connect email" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("a@gmail.com", "gmail"),
        ("A@Outlook.com", "outlook"),
        ("a@fastmail.com", "fastmail"),
        ("a@me.com", "icloud"),
        ("a@proton.me", "proton"),
        ("a@example.org", None),
    ],
)
def test_provider_is_found_by_the_address(address: str, name: str | None) -> None:
    found = preset_for(address)
    assert (found.name if found else None) == name


def test_every_preset_names_servers_and_how_to_get_a_password() -> None:
    for preset in PRESETS:
        assert preset_named(preset.name) is preset
        assert preset.imap_host
        assert preset.smtp_host
        assert preset.password_hint
        local = preset.imap_host == "127.0.0.1"
        assert local or "plain" not in (preset.imap_security, preset.smtp_security)


# -- configuration ------------------------------------------------------------------------------------


def test_table_is_set_beside_what_a_person_wrote_and_removed_again(tmp_path: Path) -> None:
    file = tmp_path / "butlers" / "messenger.toml"
    file.parent.mkdir()
    file.write_text('# mine\n[delivery]\nquiet_hours = "22:00-07:00"  # sleep\n')
    set_table("messenger", tmp_path, ("channels", "email", "work"), {"address": "a@b.org"})
    set_table("messenger", tmp_path, ("delivery",), {"owner": "telegram:7"})
    text = file.read_text()
    assert "# mine" in text
    assert "# sleep" in text
    assert 'owner = "telegram:7"' in text
    assert "[channels.email.work]" in text
    set_table("messenger", tmp_path, ("channels", "email", "work"), None)
    set_table("messenger", tmp_path, ("channels", "nothing"), None)
    assert "email" not in file.read_text()
    assert "quiet_hours" in file.read_text()


def test_broken_file_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "butlers" / "messenger.toml"
    file.parent.mkdir()
    file.write_text("[delivery\n")
    values: dict[str, Any] = {"owner": "telegram:7"}
    with pytest.raises(ConfigSyntaxError):
        set_table("messenger", tmp_path, ("delivery",), values)
    assert file.read_text() == "[delivery\n"
