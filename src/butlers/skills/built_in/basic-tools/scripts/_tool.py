"""Arguments and file access, shared by the scripts of this pack."""

from __future__ import annotations

import os
import stat
from typing import Any

from _script import Refused

# These files define the butler or its code. Only a person writes them.
PROTECTED = frozenset(
    {
        "butler.toml",
        "claude.md",
        "agents.md",
        "soul.md",
        "manifesto.md",
        "skills.lock",
        "skills",
        "tools",
        "modules",
        "api",
        "jobs",
    }
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def text(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str) or "\0" in value:
        raise Refused(f"{name} must be text")
    return value


def number(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"{name} must be a number, 0 or more")
    return value


def has_full_access() -> bool:
    return os.environ.get("BUTLERS_ACCESS") == "full"


def parts_of(path: str) -> list[str]:
    """Return the parts of a path relative to the butler's folder, the current folder."""
    if path.startswith("/"):
        raise Refused(f"{path!r} is absolute; paths are relative to your own folder")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise Refused(f"{path!r} leaves your own folder")
        if part.startswith("."):
            raise Refused(f"{part!r} is hidden; hidden files are not accessible")
    return parts


def open_folder(parts: list[str], *, make: bool = False) -> int:
    """Open the folder step by step, without following links. Return its descriptor."""
    folder = os.open(".", _FOLDER)
    for part in parts:
        try:
            if make and not _exists(part, folder):
                os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
        except OSError as error:
            raise Refused(_why(part, folder, error)) from error
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_file(parts: list[str], flags: int, folder: int) -> int:
    """Open a regular file in the folder. Refuse a link, a pipe or a device."""
    name = parts[-1]
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise Refused(_why(name, folder, error)) from error
    info = os.fstat(file)
    # A hard link could lead outside the folder like a symbolic link.
    if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
        os.close(file)
        raise Refused(f"{name!r} is not a regular file of your own folder")
    return file


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _why(name: str, folder: int, error: OSError) -> str:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return f"{name!r}: {error.strerror}"
    if stat.S_ISLNK(mode):
        return f"{name!r} is a link; links are not followed"
    return f"{name!r}: {error.strerror}"
