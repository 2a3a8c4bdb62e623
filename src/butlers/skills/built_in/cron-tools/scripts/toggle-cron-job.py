#!/usr/bin/env python3
"""Enable or disable a cron job; without `enabled`, toggle it."""

from __future__ import annotations

from typing import Any

from _butler import call
from _jobs import find_job
from _script import main


def toggle_job(arguments: dict[str, Any]) -> Any:
    job = find_job(arguments)
    enabled = bool(arguments.get("enabled", not job["enabled"]))
    return {**call("schedule_update", {"id": job["id"], "enabled": enabled}), "enabled": enabled}


if __name__ == "__main__":
    main(toggle_job)
