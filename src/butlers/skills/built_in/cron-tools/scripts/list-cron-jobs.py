#!/usr/bin/env python3
"""List cron jobs and reminders by their next run."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import main


def list_jobs(arguments: dict[str, Any]) -> Any:
    return call("schedule_list", arguments)


if __name__ == "__main__":
    main(list_jobs)
