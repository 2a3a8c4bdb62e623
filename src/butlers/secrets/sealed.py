"""Encrypted secrets and the SQL on ``shared.secrets``.

A value is encrypted with AES-GCM under the master key. Scope and name are authenticated with it, so a row
that is renamed or moved to another butler cannot be decrypted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from butlers.db.database import Connection
from butlers.db.provision import SHARED_SCOPE
from butlers.domain.errors import ButlersError
from butlers.domain.redaction import SecretText, redactor
from butlers.secrets.master_key import MasterKey

LARGEST_VALUE = 64 * 1024
NONCE_BYTES = 12

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_SCOPE = re.compile(r"[a-z][a-z0-9-]{0,39}")


class InvalidSecret(ButlersError):
    """The secret cannot be stored."""

    code = "invalid_secret"
    default_hint = "a value is text of 1 byte to 64 KB; put larger data in a file"


class SecretUnreadable(ButlersError):
    """A stored secret cannot be decrypted."""

    code = "secret_unreadable"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        # The message does not repeat the name: people paste the value instead of the name.
        raise InvalidSecret(
            "this is not a valid name for a secret",
            hint="use a letter or '_', then letters, digits, '_', '.', '-', at most 128 characters:"
            " ANTHROPIC_API_KEY",
        )
    return name


def check_scope(scope: str) -> str:
    if not _SCOPE.fullmatch(scope):
        raise InvalidSecret(
            "this is not a valid scope",
            hint=f"use {SHARED_SCOPE!r} for every butler, or a butler's name",
        )
    return scope


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret to store. Raises InvalidSecret if it cannot be stored."""

    scope: str
    name: str
    value: SecretText = field(repr=False)
    category: str | None = None  # None: unchanged
    description: str | None = None

    def __post_init__(self) -> None:
        check_scope(self.scope)
        check_name(self.name)
        redactor.register(self.value)
        if reason := _why_not(self.value):
            raise InvalidSecret(f"{self.scope}/{self.name}: the value {reason}")


def _why_not(value: str) -> str | None:
    if not value.strip():
        return "is empty"
    if "\0" in value:
        return "contains a NUL byte"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > LARGEST_VALUE:
        return f"has {size:,} bytes; {LARGEST_VALUE:,} is the limit"
    return None


@dataclass(frozen=True, slots=True)
class SecretEntry:
    """A stored secret without its value."""

    scope: str
    name: str
    category: str
    description: str
    readable: bool  # encrypted with the current master key
    created_at: datetime
    updated_at: datetime


# -- encryption -----------------------------------------------------------------------------------------


def seal(key: MasterKey, secret: NewSecret) -> tuple[bytes, bytes]:
    nonce = os.urandom(NONCE_BYTES)
    label = _label(secret.scope, secret.name)
    return nonce, AESGCM(key.secret).encrypt(nonce, secret.value.encode(), label)


def unseal(key: MasterKey, row: asyncpg.Record) -> SecretText:
    scope, name = row["scope"], row["name"]
    if row["key_id"] != key.key_id:
        raise SecretUnreadable(
            f"the secret {scope}/{name} was encrypted with another master key"
            f" ({row['key_id']}, not {key.key_id})",
            hint="restore that key (BUTLERS_MASTER_KEY, or keys/master.key in BUTLERS_HOME), or"
            f" set the secret again: {_command(scope, name)}",
        )
    try:
        opened = AESGCM(key.secret).decrypt(row["nonce"], row["ciphertext"], _label(scope, name))
        value = SecretText(opened.decode())
    except (InvalidTag, ValueError):  # ValueError: a nonce or a ciphertext of an impossible length
        raise SecretUnreadable(
            f"the secret {scope}/{name} is damaged, or was encrypted for another scope or name",
            hint=f"set it again: {_command(scope, name)}",
        ) from None
    redactor.register(value)
    return value


def _label(scope: str, name: str) -> bytes:
    return b"\0".join((b"butlers.secrets", scope.encode(), name.encode()))  # none contains a NUL


def _command(scope: str, name: str) -> str:
    words = ["butlers", "secrets", "set", name]
    words += [] if scope == SHARED_SCOPE else ["--scope", scope]
    return f"`{shlex.join(words)}`"


# -- the table ---------------------------------------------------------------------------------------


async def put(connection: Connection, key: MasterKey, secret: NewSecret) -> None:
    nonce, ciphertext = seal(key, secret)
    await connection.execute(
        """
        INSERT INTO shared.secrets AS kept
               (scope, name, nonce, ciphertext, key_id, category, description)
        VALUES ($1, $2, $3, $4, $5, COALESCE($6, 'general'), COALESCE($7, ''))
        ON CONFLICT (scope, name) DO UPDATE
        SET nonce = EXCLUDED.nonce, ciphertext = EXCLUDED.ciphertext, key_id = EXCLUDED.key_id,
            category = COALESCE($6, kept.category), description = COALESCE($7, kept.description),
            updated_at = now()
        """,
        secret.scope,
        secret.name,
        nonce,
        ciphertext,
        key.key_id,
        secret.category,
        secret.description,
    )


async def find(
    connection: Connection, key: MasterKey, name: str, scopes: Sequence[str]
) -> SecretText | None:
    """Return the value from the first of these scopes that has the name, or None."""
    row = await connection.fetchrow(
        """
        SELECT scope, name, nonce, ciphertext, key_id FROM shared.secrets
        WHERE name = $1 AND scope = ANY($2::text[])
        ORDER BY array_position($2::text[], scope) LIMIT 1
        """,
        name,
        list(scopes),
    )
    return None if row is None else unseal(key, row)


async def remove(connection: Connection, scope: str, name: str) -> bool:
    done = await connection.fetchval(
        "DELETE FROM shared.secrets WHERE scope = $1 AND name = $2 RETURNING true", scope, name
    )
    return bool(done)


async def entries(connection: Connection, key: MasterKey) -> list[SecretEntry]:
    """List the secrets that this connection's role can read."""
    rows = await connection.fetch(
        """
        SELECT scope, name, category, description, key_id = $1 AS readable, created_at, updated_at
        FROM shared.secrets ORDER BY scope, name
        """,
        key.key_id,
    )
    return [SecretEntry(**dict(row)) for row in rows]
