#!/usr/bin/env python3
"""Search past requests and replies."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import Refused, main


def search_history(arguments: dict[str, Any]) -> Any:
    if not str(arguments.get("query", "")).strip():
        raise Refused("query must contain the words to search for")
    return call("mail_search", arguments)


if __name__ == "__main__":
    main(search_history)
