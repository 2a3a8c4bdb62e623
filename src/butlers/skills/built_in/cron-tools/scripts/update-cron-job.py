#!/usr/bin/env python3
"""Change a cron job; omitted fields stay unchanged."""

from __future__ import annotations

from typing import Any

from _butler import call
from _jobs import changes, find_job
from _script import main


def update_job(arguments: dict[str, Any]) -> Any:
    return call("schedule_update", {"id": find_job(arguments)["id"], **changes(arguments)})


if __name__ == "__main__":
    main(update_job)
