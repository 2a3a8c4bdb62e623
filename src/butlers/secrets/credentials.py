"""A butler's credentials: from the database, or else from an environment variable."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg

from butlers.db.database import Connection, Database
from butlers.db.provision import SHARED_SCOPE
from butlers.domain.errors import ButlersError, NotAllowed
from butlers.domain.redaction import SecretText, redactor
from butlers.secrets import sealed as secrets
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret, SecretEntry


class CredentialMissing(ButlersError):
    """A credential is set neither in the database nor in the environment."""

    code = "credential_missing"


class CredentialStore:
    """One butler's credentials. Its database role may only read; the owner's commands write through
    ``secrets.vault``."""

    def __init__(
        self, database: Database, key: MasterKey, *, butler: str, environ: Mapping[str, str]
    ) -> None:
        self._database = database
        self._key = key
        self._butler = secrets.check_scope(butler)
        self._environ = environ

    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        """Return the butler's own secret, or the shared one, or the environment variable ``env``.

        Raises SecretUnreadable if a stored secret cannot be decrypted.
        """
        secrets.check_name(name)
        async with self._database.transaction() as connection:
            stored = await secrets.find(connection, self._key, name, (self._butler, SHARED_SCOPE))
        if stored is not None:
            return stored
        written = self._environ.get(env) if env else None
        redactor.register(written)
        return SecretText(written) if written else None

    async def require(self, name: str, *, env: str | None = None) -> str:
        """Like ``resolve``, but raise CredentialMissing instead of returning None."""
        found = await self.resolve(name, env=env)
        if found is None:
            also = f", or set the environment variable {env}" if env else ""
            raise CredentialMissing(
                f"the credential {name} of {self._butler} is not set",
                hint=f"`butlers secrets set {shlex.quote(name)}` (for this butler alone: --scope"
                f" {self._butler}){also}",
            )
        return found

    async def set(
        self,
        name: str,
        value: str,
        *,
        scope: str | None = None,
        category: str | None = None,
        description: str | None = None,
    ) -> None:
        """Store a value for this butler, or for the given scope."""
        secret = NewSecret(scope or self._butler, name, SecretText(value), category, description)
        async with self._writing() as connection:
            await secrets.put(connection, self._key, secret)

    async def delete(self, name: str, *, scope: str | None = None) -> bool:
        """Delete a value and return whether it existed."""
        secrets.check_name(name)
        async with self._writing() as connection:
            return await secrets.remove(connection, scope or self._butler, name)

    async def list(self) -> list[SecretEntry]:
        """List the secrets that this butler can use, without their values."""
        async with self._database.transaction() as connection:
            found = await secrets.entries(connection, self._key)
        return [entry for entry in found if entry.scope in (self._butler, SHARED_SCOPE)]

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Connection]:
        try:
            async with self._database.transaction() as connection:
                yield connection
        except asyncpg.InsufficientPrivilegeError:
            raise NotAllowed(
                f"{self._butler} may not write secrets",
                hint="only the owner may: `butlers secrets set|delete`",
            ) from None
