"""Bearer tokens between the processes of one fleet.

A token is ``b1.<claims>.<mac>``: it names the caller (an owner or a peer), the audience and the expiry, and
is signed with the fleet's key, a file with mode 0600 under ``BUTLERS_HOME``. Sessions have random tokens
instead, known only to their butler, which end with the session (``sessions.guard``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from butlers.config.files import write_once
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import ConfigInvalid, NotAuthenticated

PREFIX = "b1"
LIFETIME_S = 600
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class FleetKey:
    """The secret of one installation, from which tokens, role passwords and ids are derived."""

    secret: bytes = field(repr=False)

    @classmethod
    def load(cls, home: Path) -> FleetKey:
        """Return the key of this home; the first call creates it. Refuse a key that others can access."""
        path = home / "keys" / "fleet.key"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            write_once(path, secrets.token_bytes(KEY_BYTES))
        with path.open("rb") as file:
            mode, secret = os.fstat(file.fileno()).st_mode, file.read()
        if mode & 0o077:
            raise ConfigInvalid(
                f"the fleet's key is accessible to other users (mode {mode & 0o777:04o})",
                path=path,
                hint=f"`chmod 600 {shlex.quote(str(path))}`",
            )
        if len(secret) < KEY_BYTES:
            raise ConfigInvalid(
                "the fleet's key is damaged: it is too short to be safe",
                path=path,
                hint="restore it from a backup; the passwords of the butlers' roles derive from it",
            )
        return cls(secret)

    def derive(self, purpose: str) -> str:
        """Return a password or id for one purpose, equal in every process of this fleet."""
        return hmac.new(self.secret, f"derive:{purpose}".encode(), hashlib.sha256).hexdigest()

    @property
    def instance(self) -> str:
        """Id of this installation, part of its role names on the database server."""
        return self.derive("instance")[:8]

    def mint(
        self, kind: CallerKind, name: str, audience: str, *, lifetime_s: int = LIFETIME_S
    ) -> str:
        claims = {"k": kind, "n": name, "a": audience, "e": int(time.time()) + lifetime_s}
        body = _encode(json.dumps(claims, separators=(",", ":")).encode())
        return f"{PREFIX}.{body}.{self._mac(body)}"

    def verify(self, token: str, audience: str) -> Caller:
        """Return the caller of a token, or raise NotAuthenticated without a reason."""
        prefix, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        if prefix != PREFIX or not token.isascii():
            raise NotAuthenticated
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            raise NotAuthenticated
        match _read_claims(body):
            case {"k": str(kind), "n": str(name), "a": str(named), "e": int(expiry)} if (
                kind in list(CallerKind) and named == audience and expiry >= time.time()
            ):
                return Caller(kind=CallerKind(kind), name=name)
        raise NotAuthenticated

    def _mac(self, body: str) -> str:
        return _encode(hmac.new(self.secret, f"token:{body}".encode(), hashlib.sha256).digest())


def _read_claims(body: str) -> Any:
    try:
        return json.loads(_decode(body))
    except (ValueError, RecursionError):  # signed with our key, but not a token
        return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
