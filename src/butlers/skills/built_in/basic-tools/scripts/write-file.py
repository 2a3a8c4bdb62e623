#!/usr/bin/env python3
"""Write a file in the butler's folder, completely or not at all."""

from __future__ import annotations

import base64
import os
import secrets
from contextlib import suppress
from typing import Any

from _script import Refused, main
from _tool import PROTECTED, has_full_access, open_file, open_folder, parts_of, text

LIMIT = 1024 * 1024


def write_file(arguments: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(text(arguments, "path"))
    if not parts:
        raise Refused("path must name a file")
    if parts[0].casefold() in PROTECTED and not has_full_access():
        raise Refused(f"{parts[0]!r} defines the butler; only a person writes it")
    content = _content(arguments)
    folder = open_folder(parts[:-1], make=arguments.get("parents") is True)
    if arguments.get("append") is True:
        size = _append(parts, folder, content)
    else:
        size = _replace(parts, folder, content)
    return {"path": "/".join(parts), "size": size}


def _content(arguments: dict[str, Any]) -> bytes:
    written = text(arguments, "content")
    try:
        if arguments.get("encoding") == "base64":
            content = base64.b64decode(written, validate=True)
        else:
            content = written.encode()
    except ValueError as error:
        raise Refused(f"the content cannot be written: {error}") from error
    if len(content) > LIMIT:
        raise Refused(f"the content is larger than {LIMIT // 1024} KB")
    return content


def _append(parts: list[str], folder: int, content: bytes) -> int:
    with os.fdopen(open_file(parts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, folder), "ab") as file:
        file.write(content)
        file.flush()
        return os.fstat(file.fileno()).st_size


def _replace(parts: list[str], folder: int, content: bytes) -> int:
    """Write a temporary file and rename it, so that a reader never sees a partial file."""
    mode = _current_mode(parts, folder)
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.rename(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    return len(content)


def _current_mode(parts: list[str], folder: int) -> int:
    try:
        os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    file = open_file(parts, os.O_RDONLY, folder)
    try:
        return os.fstat(file).st_mode & 0o777
    finally:
        os.close(file)


if __name__ == "__main__":
    main(write_file)
