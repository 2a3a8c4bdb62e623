#!/usr/bin/env python3
"""Count messages that wait, were handled and failed."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import main


def mail_stats(arguments: dict[str, Any]) -> Any:
    return call("mail_stats", arguments)


if __name__ == "__main__":
    main(mail_stats)
