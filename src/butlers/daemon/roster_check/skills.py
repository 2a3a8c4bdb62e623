"""Conventions of skills and schedules: valid skills, and a skill and a check for each prompt schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from butlers.config.butler import ScheduleConfig
from butlers.daemon.roster_check.butler import RosterButler, problem
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.check.rules import check

_SENDS = re.compile(r"intent\W{1,8}send\b")


def check_skills(butler: RosterButler) -> Iterator[Diagnostic]:
    for folder in butler.skills:
        yield from check(folder.resolve()).diagnostics
    folder = butler.folder / "skills"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_dir() and not (entry / "SKILL.md").is_file():
            yield problem("skill", "the skill has no SKILL.md", entry)


def check_schedules(butler: RosterButler) -> Iterator[Diagnostic]:
    for schedule in butler.config.schedules if butler.config else ():
        if schedule.dispatch_mode == "job":
            yield from _job(schedule.job_name, schedule, butler)
            continue
        yield from _companion(schedule, butler)
        if schedule.check is None:
            hint = "a job that looks whether there is anything to say"
            yield _of(schedule, butler, "has no check", hint)
        else:
            yield from _job(schedule.check, schedule, butler)


def _job(name: str | None, schedule: ScheduleConfig, butler: RosterButler) -> Iterator[Diagnostic]:
    if name not in butler.jobs and butler.is_domain:
        known = ", ".join(sorted(butler.jobs)) or "none"
        yield _of(schedule, butler, f"names the unknown job {name}", f"jobs: {known}")


def _companion(schedule: ScheduleConfig, butler: RosterButler) -> Iterator[Diagnostic]:
    """Check the skill that documents the workflow of a prompt schedule."""
    words = (schedule.prompt or "").replace("`", "")
    named = [
        one
        for one in butler.skills
        if f"{one.name} workflow" in words or f"{one.name} skill" in words
    ]
    if not named:
        yield _of(schedule, butler, "has a prompt that names no skill", "Run the NAME workflow: …")
        return
    text = (named[0] / "SKILL.md").read_text()
    if "notify" not in text or not _SENDS.search(text):
        hint = 'notify with intent="send"'
        yield _of(schedule, butler, f"has the skill {named[0].name}, which sends nothing", hint)
    if "nothing" not in text.casefold():
        hint = "say what to do when there is nothing to report"
        yield _of(schedule, butler, f"has the skill {named[0].name} without a no-op path", hint)


def _of(
    schedule: ScheduleConfig, butler: RosterButler, what: str, hint: str | None = None
) -> Diagnostic:
    file: Path = butler.folder / "butler.toml"
    return problem("schedule", f"the schedule {schedule.name} {what}", file, hint)
