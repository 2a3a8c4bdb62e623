#!/usr/bin/env python3
"""Remove a cron job. What became of its past runs stays recorded."""

from __future__ import annotations

from typing import Any

from _butler import call
from _jobs import find_job
from _script import main


def delete_job(arguments: dict[str, Any]) -> Any:
    return call("schedule_delete", {"id": find_job(arguments)["id"]})


if __name__ == "__main__":
    main(delete_job)
