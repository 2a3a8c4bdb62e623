"""Bearer tokens between the parts of one fleet.

A token is ``b1.<claims>.<mac>``: it names who calls (an owner or a peer), whom (the audience) and until
when, and is signed with the fleet's key, a 0600 file under ``BUTLERS_HOME``. Sessions do not get such
tokens: theirs are random, known to their own butler alone, and end with them (``sessions.guard``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import NotAuthenticated

PREFIX = "b1"
LIFETIME_S = 600


@dataclass(frozen=True, slots=True)
class FleetKey:
    """The secret of one installation. Everything that must be known to all its daemons derives from it."""

    secret: bytes

    @classmethod
    def load(cls, home: Path) -> FleetKey:
        """The key of this home; made by whoever comes first."""
        path = home / "keys" / "fleet.key"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _write_once(path, secrets.token_bytes(32))
        return cls(path.read_bytes())

    def derive(self, purpose: str) -> str:
        """A password or id for one purpose, the same in every process of this fleet."""
        return hmac.new(self.secret, f"derive:{purpose}".encode(), hashlib.sha256).hexdigest()

    @property
    def instance(self) -> str:
        """Tells this installation's roles from another's on the same database server."""
        return self.derive("instance")[:8]

    def mint(
        self, kind: CallerKind, name: str, audience: str, *, lifetime_s: int = LIFETIME_S
    ) -> str:
        claims = {"k": kind, "n": name, "a": audience, "e": int(time.time()) + lifetime_s}
        body = _encode(json.dumps(claims, separators=(",", ":")).encode())
        return f"{PREFIX}.{body}.{self._mac(body)}"

    def verify(self, token: str, audience: str) -> Caller:
        """The caller that a token speaks for; anything else is NotAuthenticated, without saying why."""
        prefix, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        if prefix != PREFIX or not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            raise NotAuthenticated
        claims = json.loads(_decode(body))
        if claims["a"] != audience or claims["e"] < time.time():
            raise NotAuthenticated
        return Caller(kind=CallerKind(claims["k"]), name=claims["n"])

    def _mac(self, body: str) -> str:
        return _encode(hmac.new(self.secret, f"token:{body}".encode(), hashlib.sha256).digest())


def _write_once(path: Path, content: bytes) -> None:
    """Create the file whole or not at all; when two processes race, the first one's content stays."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(scratch, path)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
