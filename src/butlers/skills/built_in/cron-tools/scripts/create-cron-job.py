#!/usr/bin/env python3
"""Create a cron job that starts a session with a prompt, or runs a job."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import main


def create_job(arguments: dict[str, Any]) -> Any:
    return call("schedule_create", arguments)


if __name__ == "__main__":
    main(create_job)
