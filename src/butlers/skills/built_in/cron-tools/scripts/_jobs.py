"""Find the cron job that the arguments name."""

from __future__ import annotations

from typing import Any

from _butler import call
from _script import Refused

LIMIT = 500


def find_job(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the schedule with this id or name."""
    wanted = arguments.get("job") or arguments.get("id") or arguments.get("name")
    if not isinstance(wanted, str):
        raise Refused("job must be the id or the name of a cron job")
    listed = call("schedule_list", {"include_ended": True, "runs": 0, "limit": LIMIT})["schedules"]
    for schedule in listed:
        if wanted in (schedule["id"], schedule["name"]):
            found: dict[str, Any] = schedule
            return found
    raise Refused(f"there is no cron job {wanted!r}")


def changes(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that name the job."""
    return {key: value for key, value in arguments.items() if key not in ("job", "id", "name")}
