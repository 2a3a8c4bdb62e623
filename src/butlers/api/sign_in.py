"""Sign-in: one-time links, browser sessions and API tokens of the dashboard, kept as hashes in one file.

The file lies in the home, so that ``butlers dashboard`` can make a link for a server in another process, and
so that a browser stays signed in over a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from butlers.config.files import exclusive_lock, make_private_folder, replace_file

LINK_S = 10 * 60
SESSION_S = 30 * 86_400
MAX_LINKS = 20
MAX_SESSIONS = 50


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in browser or program."""

    id: str
    scopes: frozenset[Scope]
    csrf: str | None = None  # of a browser; a program with a bearer token needs none

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


@dataclass(slots=True)
class _ApiToken:
    name: str
    scopes: list[str]
    created: float


@dataclass(slots=True)
class _Kept:
    """Content of the file. Keys are hashes, values are expiry times in seconds since 1970."""

    links: dict[str, float] = field(default_factory=dict)
    sessions: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, _ApiToken] = field(default_factory=dict)


class SignInStore:
    def __init__(self, home: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = home / "dashboard"
        self._path = self._folder / "sign-in.json"
        self._now = now
        self._seen: tuple[int, int] | None = None  # mtime and size of the file that was read
        self._kept = _Kept()

    def make_link(self) -> str:
        """Return the secret of a link that signs one browser in, once, within ten minutes."""
        secret = secrets.token_urlsafe(24)
        with self._changing() as kept:
            kept.links[_hash(secret)] = self._now() + LINK_S
            _keep_newest(kept.links, MAX_LINKS)
        return secret

    def use_link(self, secret: str) -> str | None:
        """Exchange a link for the secret of a new browser session, or return None."""
        session = secrets.token_urlsafe(32)
        with self._changing() as kept:
            if kept.links.pop(_hash(secret), 0) < self._now():
                return None
            kept.sessions[_hash(session)] = self._now() + SESSION_S
            _keep_newest(kept.sessions, MAX_SESSIONS)
        return session

    def visitor_of_session(self, secret: str) -> Visitor | None:
        expires = self._read().sessions.get(_hash(secret), 0)
        if expires < self._now():
            return None
        csrf = hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()
        return Visitor(_hash(secret)[:12], frozenset(Scope), csrf)

    def visitor_of_token(self, secret: str) -> Visitor | None:
        token = self._read().tokens.get(_hash(secret))
        if token is None:
            return None
        return Visitor(token.name, frozenset(Scope(name) for name in token.scopes))

    def make_token(self, name: str, scopes: frozenset[Scope]) -> str:
        """Return a new API token. Only its hash is kept."""
        secret = f"bd_{secrets.token_urlsafe(32)}"
        with self._changing() as kept:
            kept.tokens[_hash(secret)] = _ApiToken(name, sorted(scopes), self._now())
        return secret

    def tokens(self) -> list[dict[str, object]]:
        return [asdict(token) for token in self._read().tokens.values()]

    def revoke_token(self, name: str) -> bool:
        with self._changing() as kept:
            gone = [key for key, token in kept.tokens.items() if token.name == name]
            for key in gone:
                del kept.tokens[key]
        return bool(gone)

    def sign_out(self, secret: str) -> None:
        with self._changing() as kept:
            kept.sessions.pop(_hash(secret), None)

    def sign_out_everywhere(self) -> int:
        """End every browser session and every open link. API tokens stay."""
        with self._changing() as kept:
            ended = len(kept.sessions)
            kept.sessions.clear()
            kept.links.clear()
        return ended

    @contextmanager
    def _changing(self) -> Iterator[_Kept]:
        make_private_folder(self._folder)
        with exclusive_lock(self._folder / "sign-in.lock"):
            kept = self._read()
            for expiring in (kept.links, kept.sessions):
                for key in [key for key, expires in expiring.items() if expires < self._now()]:
                    del expiring[key]
            yield kept
            replace_file(self._path, json.dumps(asdict(kept)).encode())

    def _read(self) -> _Kept:
        """Return the file's content, which is read again only after a change."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                content = json.loads(self._path.read_bytes())
                tokens = {key: _ApiToken(**token) for key, token in content["tokens"].items()}
                self._kept = _Kept(content["links"], content["sessions"], tokens)
                self._seen = seen
        except FileNotFoundError:
            self._kept = _Kept()
        return self._kept


def _keep_newest(expiring: dict[str, float], limit: int) -> None:
    for key in sorted(expiring, key=lambda one: expiring[one])[:-limit]:
        del expiring[key]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
