#!/usr/bin/env python3
"""Read a file from the butler's folder."""

from __future__ import annotations

import base64
import os
from typing import Any

from _script import Refused, main
from _tool import number, open_file, open_folder, parts_of, text

LIMIT = 256 * 1024


def read_file(arguments: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(text(arguments, "path"))
    offset, limit = number(arguments, "offset", 0), min(number(arguments, "limit", LIMIT), LIMIT)
    if not parts:
        raise Refused("path must name a file")
    folder = open_folder(parts[:-1])
    with os.fdopen(open_file(parts, os.O_RDONLY, folder), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(min(offset, size))
        content = file.read(limit)
    described = {"path": "/".join(parts), "size": size, "truncated": offset + len(content) < size}
    try:
        return described | {"content": content.decode()}
    except UnicodeDecodeError:
        return described | {"content": base64.b64encode(content).decode(), "encoding": "base64"}


if __name__ == "__main__":
    main(read_file)
