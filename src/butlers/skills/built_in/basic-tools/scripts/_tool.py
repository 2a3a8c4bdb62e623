"""What the scripts of this pack share: which arguments they take, and where files are."""

from __future__ import annotations

import os
import stat
from typing import Any

from _script import Refused

# They change what the butler is, or will run: a person's to write.
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
        raise Refused(f"{name} must be a text")
    return value


def number(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"{name} must be a number, 0 or more")
    return value


def has_full_access() -> bool:
    return os.environ.get("BUTLERS_ACCESS") == "full"


def parts_of(path: str) -> list[str]:
    """The steps from the butler's folder to the path. The folder is where the script was started."""
    if path.startswith("/"):
        raise Refused(f"{path!r} is absolute: paths are relative to your own folder")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise Refused(f"{path!r} leaves your own folder")
        if part.startswith("."):
            raise Refused(f"{part!r} is hidden, and hidden files are not reached")
    return parts


def open_folder(parts: list[str], *, make: bool = False) -> int:
    """A descriptor of the folder, reached step by step, each without following a link."""
    folder = os.open(".", _FOLDER)
    for part in parts:
        try:
            if make and not _is_there(part, folder):
                os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
        except OSError as error:
            raise Refused(_why(part, folder, error)) from error
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_file(parts: list[str], flags: int, folder: int) -> int:
    """A descriptor of a plain file in the folder; a link, a pipe or a device is refused."""
    name = parts[-1]
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise Refused(_why(name, folder, error)) from error
    info = os.fstat(file)
    # A second name of a file elsewhere would lead out as a link does.
    if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
        os.close(file)
        raise Refused(f"{name!r} is no plain file of your own folder")
    return file


def _is_there(name: str, folder: int) -> bool:
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
        return f"{name!r} is a link, and links are not followed"
    return f"{name!r}: {error.strerror}"
