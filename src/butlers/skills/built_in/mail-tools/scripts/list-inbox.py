#!/usr/bin/env python3
"""List the messages that are not handled yet."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import main


def list_inbox(arguments: dict[str, Any]) -> Any:
    return call("mail_inbox", arguments)


if __name__ == "__main__":
    main(list_inbox)
