#!/usr/bin/env python3
"""Delete a cron job. The record of its past runs is kept."""

from __future__ import annotations

from typing import Any

from _butler import call
from _jobs import find_job
from _script import main


def delete_job(arguments: dict[str, Any]) -> Any:
    return call("schedule_delete", {"id": find_job(arguments)["id"]})


if __name__ == "__main__":
    main(delete_job)
