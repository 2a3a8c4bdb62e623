#!/usr/bin/env python3
"""Search what was asked and said."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import Refused, main


def search_history(arguments: dict[str, Any]) -> Any:
    if not str(arguments.get("query", "")).strip():
        raise Refused("query must be the words to look for")
    return call("mail_search", arguments)


if __name__ == "__main__":
    main(search_history)
