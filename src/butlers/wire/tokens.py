"""Bearer tokens between the processes of one fleet.

A token is ``b1.<claims>.<mac>``: it names the caller (an owner or a peer), the audience and the expiry, and
is signed with the fleet's key, a file with mode 0600 under ``BUTLERS_HOME``. Sessions have random tokens
instead, known only to their butler, which end with the session (``sessions.guard``).

A client authenticates the server before it sends a token: another program may listen on the port of a butler
that crashed. The server proves that it has the key, and names its instance; the token is good for that
instance alone, so it is worthless to whoever takes the port a moment later.
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
from functools import cache
from pathlib import Path
from typing import Any

from butlers.config.files import write_once
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import ConfigInvalid, NotAuthenticated

PREFIX = "b1"
LIFETIME_S = 600
KEY_BYTES = 32
IDENTITY = "/identity"  # path at which a server proves that it has the key
MAX_NONCE = 128
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        self,
        kind: CallerKind,
        name: str,
        audience: str,
        *,
        lifetime_s: int = LIFETIME_S,
        instance: str | None = None,
    ) -> str:
        """Return a token for this audience; with ``instance``, for that instance of it alone."""
        expiry = int(time.time()) + lifetime_s
        claims: dict[str, str | int] = {"k": kind, "n": name, "a": audience, "e": expiry}
        if boot := _boot():
            claims |= {"b": boot, "m": int(time.monotonic()) + lifetime_s}
        if instance is not None:
            claims["i"] = instance
        body = _encode(json.dumps(claims, separators=(",", ":")).encode())
        return f"{PREFIX}.{body}.{self._mac(body)}"

    def verify(self, token: str, audience: str, instance: str | None = None) -> Caller:
        """Return the caller of a token, or raise NotAuthenticated without a reason."""
        prefix, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        if prefix != PREFIX or not token.isascii():
            raise NotAuthenticated
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            raise NotAuthenticated
        claims = _read_claims(body)
        if isinstance(claims, dict) and claims.get("i", instance) != instance:
            raise NotAuthenticated
        match claims:
            case {"k": str(kind), "n": str(name), "a": str(named), "e": int()} if (
                kind in list(CallerKind) and named == audience and _is_alive(claims)
            ):
                return Caller(kind=CallerKind(kind), name=name)
        raise NotAuthenticated

    def prove(self, audience: str, port: int, nonce: str, instance: str) -> str:
        """Return the proof that the server of this butler, at this port, has the key."""
        facts = json.dumps([audience, port, nonce, instance])
        return hmac.new(self.secret, f"server:{facts}".encode(), hashlib.sha256).hexdigest()

    def _mac(self, body: str) -> str:
        return _encode(hmac.new(self.secret, f"token:{body}".encode(), hashlib.sha256).digest())


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A running server of one butler, which can prove that it belongs to the fleet."""

    key: FleetKey
    butler: str
    instance: str = field(default_factory=lambda: secrets.token_hex(16))

    def answer(self, nonce: str, port: int) -> dict[str, str]:
        proof = self.key.prove(self.butler, port, nonce[:MAX_NONCE], self.instance)
        return {"instance": self.instance, "proof": proof}


@dataclass(frozen=True, slots=True)
class FleetCredential:
    """A caller with the fleet's key: it checks a server, and mints tokens for that server."""

    key: FleetKey
    kind: CallerKind
    name: str
    audience: str

    def instance_of(self, answer: Any, nonce: str, port: int) -> str:
        """Return the instance of a server that proved to have the key, or raise NotAuthenticated."""
        match answer:
            case {"instance": str(instance), "proof": str(proof)}:
                expected = self.key.prove(self.audience, port, nonce, instance)
                if hmac.compare_digest(proof.encode("utf-8", "replace"), expected.encode()):
                    return instance
        raise NotAuthenticated(
            f"the program at port {port} is not {self.audience} of this fleet, so it got no token",
            hint="see which program holds the port, or check that both sides use the same BUTLERS_HOME",
        )

    def token(self, instance: str) -> str:
        return self.key.mint(self.kind, self.name, self.audience, instance=instance)


@cache
def _boot() -> str | None:
    """Return an id of this boot of the machine; None if the system has none."""
    try:
        return hashlib.sha256(BOOT_ID.read_bytes()).hexdigest()[:12]
    except OSError:
        return None


def _is_alive(claims: dict[str, Any]) -> bool:
    """Check the expiry: by the monotonic clock for a token of this machine, which no change of the wall
    clock affects, and otherwise by the wall clock."""
    monotonic = claims.get("m")
    if isinstance(monotonic, int) and claims.get("b") == _boot() is not None:
        return monotonic >= time.monotonic()
    return bool(claims["e"] >= time.time())


def _read_claims(body: str) -> Any:
    try:
        return json.loads(_decode(body))
    except (ValueError, RecursionError):  # signed with our key, but not a token
        return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
