"""The master key that encrypts secrets: BUTLERS_MASTER_KEY, or else a file with mode 0600."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import shlex
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
        """Return the key in the environment, or that of this home, which the first call creates."""
        if settings.master_key:
            redactor.register(settings.master_key)
            return cls(_decode(settings.master_key))
        return cls(_read(settings.home / "keys" / "master.key"))

    @property
    def key_id(self) -> str:
        """Id of the key, stored with each row. It does not reveal the key."""
        return hmac.new(self.secret, b"butlers:master-key:id", hashlib.sha256).hexdigest()[:16]


def _decode(written: str) -> bytes:
    text = written.strip()
    try:
        # 64 hexadecimal digits are also valid base64, of 48 bytes.
        key = bytes.fromhex(text) if _HEX.fullmatch(text) else _decode_base64(text)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigInvalid(
            f"{VARIABLE} is not a key of {KEY_BYTES} bytes in base64 or hexadecimal",
            key=VARIABLE,
            hint="create one with `head -c 32 /dev/urandom | base64`, or leave it unset to create a"
            " key file",
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
            f"the master key cannot be read: {error.strerror}",
            path=path,
            hint=f"make the file readable for its owner only, or set {VARIABLE}",
        ) from error
    if mode & 0o077:
        raise ConfigInvalid(
            f"the master key is accessible to other users (mode {mode & 0o777:04o})",
            path=path,
            hint=f"`chmod 600 {shlex.quote(str(path))}`;"
            " if others use this machine, replace your secrets as well",
        )
    if len(key) != KEY_BYTES:
        raise ConfigInvalid(
            f"the master key is damaged: {len(key)} bytes instead of {KEY_BYTES}",
            path=path,
            hint="restore it from a backup; without it the stored secrets cannot be read",
        )
    return key
