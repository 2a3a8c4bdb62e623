"""The key that secrets are sealed with. It is never in the database: BUTLERS_MASTER_KEY, else a 0600 file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from butlers.config.files import make_private_folder, write_once
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.domain.redaction import redactor

KEY_BYTES = 32
VARIABLE = "BUTLERS_MASTER_KEY"
_HEX = re.compile(r"[0-9A-Fa-f]{64}")


@dataclass(frozen=True, slots=True)
class MasterKey:
    secret: bytes = field(repr=False)

    @classmethod
    def load(cls, settings: Settings) -> MasterKey:
        """The key of this home; without one in the environment, made by whoever comes first."""
        if settings.master_key:
            redactor.register(settings.master_key)
            return cls(_decode(settings.master_key))
        return cls(_read(settings.home / "keys" / "master.key"))

    @property
    def key_id(self) -> str:
        """Says which key sealed a row, and nothing about the key."""
        return hmac.new(self.secret, b"butlers:master-key:id", hashlib.sha256).hexdigest()[:16]


def _decode(written: str) -> bytes:
    text = written.strip()
    try:
        # 64 hexadecimal digits are base64 as well, of 48 bytes that nobody means.
        key = bytes.fromhex(text) if _HEX.fullmatch(text) else _decode_base64(text)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigInvalid(
            f"{VARIABLE} is not a key of {KEY_BYTES} bytes in base64 or hexadecimal",
            key=VARIABLE,
            hint="make one with `head -c 32 /dev/urandom | base64`, or leave it unset to have a"
            " key file made",
        )
    return key


def _decode_base64(text: str) -> bytes:
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def _read(path: Path) -> bytes:
    try:
        make_private_folder(path.parent)
        if not path.exists():
            write_once(path, secrets.token_bytes(KEY_BYTES))
        mode, key = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise ConfigInvalid(
            f"the master key can not be read: {error.strerror}",
            path=path,
            hint=f"make the file readable for you alone, or set {VARIABLE}",
        ) from error
    if mode & 0o077:
        raise ConfigInvalid(
            f"the master key may be used by others than its owner (mode {mode & 0o777:04o})",
            path=path,
            hint=f"`chmod 600 {path}`; if others are on this machine, set your secrets anew as well",
        )
    if len(key) != KEY_BYTES:
        raise ConfigInvalid(
            f"the master key is damaged: {len(key)} bytes instead of {KEY_BYTES}",
            path=path,
            hint="restore it from a backup; without it the stored secrets can not be read",
        )
    return key
