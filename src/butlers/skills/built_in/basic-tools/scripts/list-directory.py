#!/usr/bin/env python3
"""List a folder inside the butler's folder."""

from __future__ import annotations

import os
import stat
from typing import Any

from _script import main
from _tool import open_folder, parts_of, text

LIMIT = 1_000
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))


def list_directory(arguments: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(text(arguments, "path", "."))
    folder = open_folder(parts)
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return {
        "path": "/".join(parts) or ".",
        "entries": [_entry(name, folder) for name in names[:LIMIT]],
        "truncated": len(names) > LIMIT,
    }


def _entry(name: str, folder: int) -> dict[str, Any]:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kind = next((word for holds, word in _KINDS if holds(info.st_mode)), "other")
    shown = os.fsencode(name).decode("utf-8", "replace")
    return {"name": shown, "kind": kind} | ({"size": info.st_size} if kind == "file" else {})


if __name__ == "__main__":
    main(list_directory)
