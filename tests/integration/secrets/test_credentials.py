"""Credentials: the order of sources, and encryption that detects moved or changed rows."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from butlers.db.provision import ButlerSchema
from butlers.domain.errors import NotAllowed, NotFound
from butlers.domain.redaction import MASK, SecretText, redactor
from butlers.secrets.credentials import CredentialMissing
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import InvalidSecret, NewSecret, SecretUnreadable
from integration.secrets.conftest import Installation

TOKEN = "telegram.token"


def new(scope: str, name: str, value: str, **more: Any) -> NewSecret:
    return NewSecret(scope, name, SecretText(value), **more)


# -- the order -------------------------------------------------------------------------------------


async def test_own_secret_then_shared_then_the_variable_the_config_names(
    installation: Installation,
) -> None:
    store = await installation.store("health", BUTLER_TELEGRAM_TOKEN="from-environment")
    assert await store.resolve(TOKEN) is None
    assert await store.resolve(TOKEN, env="NOT_SET") is None
    assert await store.resolve(TOKEN, env="BUTLER_TELEGRAM_TOKEN") == "from-environment"
    await installation.vault.put([new("shared", TOKEN, "from-shared")])
    assert await store.resolve(TOKEN, env="BUTLER_TELEGRAM_TOKEN") == "from-shared"
    await installation.vault.put([new("health", TOKEN, "from-health")])
    assert await store.resolve(TOKEN, env="BUTLER_TELEGRAM_TOKEN") == "from-health"
    assert await (await installation.store("general")).resolve(TOKEN) == "from-shared"
    await installation.vault.delete("health", TOKEN)
    await installation.vault.delete("shared", TOKEN)
    assert await store.resolve(TOKEN, env="BUTLER_TELEGRAM_TOKEN") == "from-environment"


async def test_a_variable_that_the_config_does_not_name_is_not_looked_at(
    installation: Installation,
) -> None:
    store = await installation.store("health", TOKEN="ambient", EMPTY="")
    assert await store.resolve("TOKEN") is None
    assert await store.resolve("TOKEN", env="EMPTY") is None


async def test_missing_credential_names_both_ways_to_set_it(installation: Installation) -> None:
    store = await installation.store("health")
    with pytest.raises(CredentialMissing, match=r"telegram\.token of health") as missing:
        await store.require(TOKEN, env="BUTLER_TELEGRAM_TOKEN")
    assert "butlers secrets set telegram.token" in (missing.value.hint or "")
    assert "--scope health" in (missing.value.hint or "")
    assert "BUTLER_TELEGRAM_TOKEN" in (missing.value.hint or "")
    await installation.vault.put([new("shared", TOKEN, "now-there")])
    assert await store.require(TOKEN) == "now-there"


async def test_every_value_handed_out_is_known_to_the_redactor(installation: Installation) -> None:
    stored, ambient = f"stored-{secrets.token_hex(8)}", f"ambient-{secrets.token_hex(8)}"
    await installation.vault.put([new("shared", "STORED", stored)])
    store = await installation.store("health", AMBIENT=ambient)
    found = [await store.resolve("STORED"), await store.resolve("OTHER", env="AMBIENT")]
    assert found == [stored, ambient]
    assert redactor.scrub(f"{stored} {ambient}") == f"{MASK} {MASK}"
    assert "stored-" not in repr(found)
    assert "ambient-" not in repr(found)


# -- what can be kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "x",
        "日本語 пароль 🔑",
        "-----BEGIN KEY-----\nline\r\n\ttab\n-----END KEY-----\n",
        "quotes ' \" \\ and $VAR {x} %s",
        " kept with its spaces ",
        "x" * 65_536,
        "é" * 32_768,
    ],
    ids=["one character", "unicode", "lines", "quotes", "spaces", "64 KB", "64 KB of UTF-8"],
)
async def test_a_value_comes_back_as_it_was(installation: Installation, value: str) -> None:
    await installation.vault.put([new("health", "VALUE", value)])
    assert await (await installation.store("health")).resolve("VALUE") == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("x" * 65_537, "65,537 bytes"),
        ("é" * 32_769, "65,538 bytes"),
        ("planted\0nul", "NUL"),
        ("planted\ud800", "Unicode"),
    ],
    ids=["empty", "blank", "too long", "too long in UTF-8", "NUL", "a lone surrogate"],
)
def test_unstorable_value_is_rejected_with_the_reason(value: str, reason: str) -> None:
    with pytest.raises(InvalidSecret, match=reason) as refused:
        new("health", "VALUE", value)
    assert "health/VALUE" in str(refused.value)
    assert "planted" not in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["A", "_", "a.b-c_d9", "X" * 128])
def test_a_good_name(name: str) -> None:
    assert new("shared", name, "value").name == name


@pytest.mark.parametrize(
    "name", ["", "9A", "-a", ".a", "a b", "a\n", "a=b", "ä", "X" * 129, "a/b", "a\0b"]
)
async def test_a_bad_name_is_refused_everywhere_and_not_repeated(
    installation: Installation, name: str
) -> None:
    store = await installation.store("health")
    for attempt in (store.resolve(name), store.set(name, "value"), store.delete(name)):
        with pytest.raises(InvalidSecret, match="not a valid name for a secret"):
            await attempt
    with pytest.raises(InvalidSecret):
        new("shared", name, "value")


@pytest.mark.parametrize("scope", ["", "Health", "a/b", "a\0b", "health\n", "x" * 41])
def test_a_bad_scope_is_refused(scope: str) -> None:
    with pytest.raises(InvalidSecret, match="not a valid scope"):
        new(scope, "NAME", "value")


async def test_a_scope_without_a_butler_is_refused_and_nothing_is_kept(
    installation: Installation,
) -> None:
    with pytest.raises(NotFound, match="nobody") as refused:
        await installation.vault.put(
            [new("shared", "GOOD", "value"), new("nobody", "BAD", "value")]
        )
    assert "general, health, solo" in (refused.value.hint or "")
    assert await installation.vault.entries() == []


# -- what is told about them -------------------------------------------------------------------------


async def test_list_shows_everything_but_the_value(installation: Installation) -> None:
    await installation.vault.put(
        [
            new("shared", "S", "planted-shared", category="llm", description="for all"),
            new("health", "H", "planted-health"),
            new("general", "G", "planted-general"),
            new("solo", "O", "planted-solo"),
        ]
    )
    mine = await (await installation.store("health")).list()
    assert [(entry.scope, entry.name) for entry in mine] == [("health", "H"), ("shared", "S")]
    every = await installation.vault.entries()
    assert [(entry.scope, entry.name) for entry in every] == [
        ("general", "G"),
        ("health", "H"),
        ("shared", "S"),
        ("solo", "O"),
    ]
    assert (every[2].category, every[2].description) == ("llm", "for all")
    assert all(entry.readable for entry in every)
    assert "planted" not in repr(mine) + repr(every)


async def test_setting_again_replaces_the_value_and_keeps_what_is_not_said(
    installation: Installation,
) -> None:
    await installation.vault.put([new("health", "A", "first", category="llm", description="why")])
    (before,) = await installation.vault.entries()
    await installation.vault.put([new("health", "A", "second")])
    (after,) = await installation.vault.entries()
    assert await (await installation.store("health")).resolve("A") == "second"
    assert (after.category, after.description) == ("llm", "why")
    assert after.created_at == before.created_at
    assert after.updated_at > before.updated_at


async def test_deleting_a_missing_secret_is_reported(installation: Installation) -> None:
    with pytest.raises(NotFound, match="no secret GONE for shared"):
        await installation.vault.delete("shared", "GONE")


# -- sealing -----------------------------------------------------------------------------------------


async def test_the_table_holds_no_clear_text_and_never_the_same_ciphertext(
    installation: Installation,
) -> None:
    for name in ("A", "B", "A"):
        await installation.vault.put([new("shared", name, "planted-secret")])
    async with installation.as_admin() as connection:
        rows = await connection.fetch("SELECT * FROM shared.secrets")
    assert b"planted" not in b"".join(bytes(row["ciphertext"]) for row in rows)
    assert "planted" not in repr([dict(row) for row in rows])
    assert len({bytes(row["nonce"]) for row in rows}) == 2
    assert len({bytes(row["ciphertext"]) for row in rows}) == 2


TAMPERED = {
    "copied to another scope": "UPDATE shared.secrets SET scope = 'health' WHERE name = 'A'",
    "copied to another name": """
        INSERT INTO shared.secrets (scope, name, nonce, ciphertext, key_id)
        SELECT 'health', 'A', nonce, ciphertext, key_id FROM shared.secrets WHERE name = 'B'""",
    "scope and name cut elsewhere": """
        INSERT INTO shared.secrets (scope, name, nonce, ciphertext, key_id)
        SELECT 'health', 'A', nonce, ciphertext, key_id FROM shared.secrets WHERE name = 'thA'""",
    "truncated": "UPDATE shared.secrets SET ciphertext = substr(ciphertext, 1, 20)",
    "emptied": "UPDATE shared.secrets SET ciphertext = ''",
    "one bit turned": "UPDATE shared.secrets"
    " SET ciphertext = set_bit(ciphertext, 3, 1 - get_bit(ciphertext, 3))",
    "another nonce": "UPDATE shared.secrets SET nonce = decode(repeat('00', 12), 'hex')",
    "no nonce": "UPDATE shared.secrets SET nonce = ''",
}


@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED)
async def test_a_row_that_was_changed_or_moved_does_not_open(
    installation: Installation, statement: str
) -> None:
    await installation.vault.put(
        [
            new("general", "A", "planted-general"),
            new("shared", "A", "planted-shared"),
            new("shared", "B", "planted-other"),
            new("general", "thA", "planted-third"),
        ]
    )
    async with installation.as_admin() as connection:
        if "scope = 'health'" in statement:
            await connection.execute("DELETE FROM shared.secrets WHERE scope = 'shared'")
        await connection.execute(statement)
    store = await installation.store("health", FALLBACK="must-not-be-used")
    with pytest.raises(SecretUnreadable, match=r"(health|shared)/A") as refused:
        await store.resolve("A", env="FALLBACK")
    assert "butlers secrets set A" in (refused.value.hint or "")
    assert "planted" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"


async def test_another_master_key_is_named_as_the_reason(installation: Installation) -> None:
    await installation.vault.put([new("shared", "A", "planted-shared")])
    other = MasterKey(secrets.token_bytes(32))
    store = await installation.store("health", key=other)
    with pytest.raises(
        SecretUnreadable, match="shared/A was encrypted with another master key"
    ) as no:
        await store.require("A")
    assert "BUTLERS_MASTER_KEY" in (no.value.hint or "")
    assert [entry.readable for entry in await store.list()] == [False]
    assert other.secret.hex() not in str(no.value)


async def test_a_forged_key_id_does_not_help(installation: Installation) -> None:
    await installation.vault.put([new("shared", "A", "planted-shared")])
    other = MasterKey(secrets.token_bytes(32))
    async with installation.as_admin() as connection:
        await connection.execute("UPDATE shared.secrets SET key_id = $1", other.key_id)
    with pytest.raises(SecretUnreadable, match="damaged"):
        await (await installation.store("health", key=other)).resolve("A")


# -- several at once ---------------------------------------------------------------------------------


async def test_concurrent_writers_leave_one_complete_value(installation: Installation) -> None:
    values = [f"value-{number}-" + "x" * 500 for number in range(8)]
    await asyncio.gather(*(installation.vault.put([new("shared", "A", value)]) for value in values))
    assert await (await installation.store("health")).resolve("A") in values
    assert await (await installation.store("solo")).resolve("A") in values
    assert len(await installation.vault.entries()) == 1


async def test_concurrent_imports_are_each_complete(installation: Installation) -> None:
    """In opposite orders, so that without an order of our own they would lock each other up."""
    names = [f"N{number:02}" for number in range(20)]
    await asyncio.gather(
        *(
            installation.vault.put([new("shared", name, mark) for name in order])
            for mark, order in (("first", names), ("second", names[::-1]), ("third", names))
        )
    )
    store = await installation.store("general")
    kept = {await store.resolve(name) for name in names}
    assert len(kept) == 1


async def test_failed_write_stores_nothing(fresh_installation: Installation) -> None:
    installation = fresh_installation
    async with installation.as_admin("solo") as connection:
        await connection.execute(
            "ALTER TABLE shared.secrets ADD CONSTRAINT full_up CHECK (name <> 'LAST')"
        )
    with pytest.raises(Exception, match="full_up"):
        await installation.vault.put(
            [new("shared", "A", "value"), new("health", "B", "value"), new("solo", "LAST", "value")]
        )
    assert await installation.vault.entries() == []


# -- a database of one's own --------------------------------------------------------------------------


async def test_a_butler_with_its_own_database_has_the_shared_secrets_too(
    installation: Installation,
) -> None:
    await installation.vault.put([new("shared", "A", "first"), new("shared", "B", "gone-soon")])
    solo = await installation.store("solo")
    assert await solo.resolve("A") == "first"
    await installation.vault.put([new("shared", "A", "second")])
    assert await solo.resolve("A") == "second"
    await installation.vault.delete("shared", "B")
    assert await solo.resolve("B") is None


async def test_a_butler_that_comes_later_gets_what_was_set_before(
    fresh_installation: Installation,
) -> None:
    installation = fresh_installation
    await installation.vault.put([new("shared", "A", "before")])
    async with installation.as_admin("solo") as connection:
        await connection.execute("DROP SCHEMA shared CASCADE")
    place = ButlerSchema("solo", installation.logins["solo"].database, None)
    await asyncio.gather(*(installation.provisioner.provision(place) for _ in range(4)))
    assert await (await installation.store("solo")).resolve("A") == "before"


async def test_butler_cannot_write_secrets(installation: Installation) -> None:
    await installation.vault.put([new("health", "A", "value")])
    store = await installation.store("health")
    for attempt in (
        store.set("A", "changed"),
        store.set("A", "changed", scope="shared"),
        store.delete("A"),
    ):
        with pytest.raises(NotAllowed, match="may not write secrets") as refused:
            await attempt
        assert "butlers secrets" in (refused.value.hint or "")
    assert await store.resolve("A") == "value"
