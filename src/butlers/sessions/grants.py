"""What an access level means in one butler's folder, spelled out: no pattern, one entry per thing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from butlers.config.butler import ButlerConfig
from butlers.domain.session import Access, SessionRequest
from butlers.runtimes.base import Grants
from butlers.skills.skill_set import CUSTOM
from butlers.skills.skill_set import FOLDER as SKILLS

NOTES = "AGENTS.md"
_RUNNERS = {".py": ("python", "python3"), ".sh": ("bash", "sh")}


def level_of(session: SessionRequest, config: ButlerConfig) -> Access:
    """A person's own trigger may do more than what came from outside or by the clock."""
    runtime, source = config.runtime, session.trigger_source
    if source == "trigger":
        return Access(runtime.access)
    if source == "route" or (source.startswith("schedule:") and session.request is not None):
        return Access(runtime.routed_access)  # a task that a message asked for is no better than it
    return Access(runtime.schedule_access) if source.startswith("schedule:") else Access.SEALED


def grants_for(access: Access, directory: Path, skills: tuple[Path, ...] = ()) -> Grants:
    """``skills``: the folders where they were mounted for this session."""
    if access is not Access.WORKSPACE:
        return Grants(access)
    return Grants(
        access,
        readable=(directory, *skills),
        writable=(directory / NOTES,),
        commands=tuple(_commands(directory)),
    )


def _commands(directory: Path) -> Iterator[str]:
    yield from (f"ls {SKILLS}", f"ls {SKILLS}/")
    skills = directory / SKILLS
    for skill in sorted(skills.iterdir()) if skills.is_dir() else ():
        # What sessions make is a draft until a person approves it, and is run by the butler alone.
        if skill.is_dir() and not skill.is_symlink() and skill.name != CUSTOM:
            yield f"ls {SKILLS}/{skill.name}"
            for file in sorted(skill.rglob("*")):
                yield from _ways_to_run(file, directory)


def _ways_to_run(file: Path, directory: Path) -> Iterator[str]:
    if file.is_symlink() or not file.is_file():
        return
    path = file.relative_to(directory).as_posix()
    if not path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return  # a name that a shell reads in its own way is run by nobody
    for runner in _RUNNERS.get(file.suffix, ()):
        yield f"{runner} {path}"
    if os.access(file, os.X_OK):
        yield f"./{path}"
