"""How other clients take a SKILL.md: they load it, they load less of it, or they drop it without a word.

Read off their documentation and sources; `skills-ref` is compared with the real one in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from butlers.skills import names
from butlers.skills.check.reference_rules import reference_problems
from butlers.skills.formats.base import Reading
from butlers.skills.skill import Skill

_CLAUDE_LISTING = 1_536


class Outcome(StrEnum):
    LOADS = "loads"
    DEGRADED = "degraded"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Verdict:
    client: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()


class _Seen(NamedTuple):
    folder: Path
    skill: Skill
    codes: frozenset[str]
    traits: frozenset[str]


Finding = tuple[Outcome, str]


def verdict(client: str, folder: Path, reading: Reading) -> Verdict:
    """What this client makes of the folder, with every reason."""
    if reading.skill is None or not reading.skill.has_skill_md:
        return Verdict(client, Outcome.DROPPED, ("there is no SKILL.md",))
    seen = _Seen(folder, reading.skill, reading.codes(), reading.traits)
    found = [*_CLIENTS[client](seen)]
    worst = max((outcome for outcome, _ in found), key=_RANK.index, default=Outcome.LOADS)
    return Verdict(client, worst, tuple(reason for _, reason in found))


def _claude(seen: _Seen) -> Iterator[Finding]:
    yield from _file_name(seen)
    if "not-yaml" in seen.traits:
        yield Outcome.DEGRADED, "the front matter is not YAML; its fields are not read"
    if len(seen.skill.description) > _CLAUDE_LISTING:
        yield Outcome.DEGRADED, f"the listing cuts descriptions at {_CLAUDE_LISTING} characters"
    if "name-directory" in seen.codes:
        yield Outcome.DEGRADED, f"it is called {seen.folder.name}, by its folder"


def _codex(seen: _Seen) -> Iterator[Finding]:
    yield from _file_name(seen)
    yield from _needs_front_matter(seen)
    if (seen.folder / "SKILL.md").is_symlink():
        yield Outcome.DROPPED, "SKILL.md is a symbolic link"
    if "scanned" in seen.traits:
        yield Outcome.DROPPED, "the front matter is not YAML, and quoting does not mend it"
    yield from _needs_description(seen)
    if "name-too-long" in seen.codes:
        yield Outcome.DROPPED, f"the name has more than {names.MAX_NAME} characters"
    if "description-too-long" in seen.codes:
        yield Outcome.DEGRADED, f"the listing cuts descriptions at {names.MAX_DESCRIPTION}"


def _gemini(seen: _Seen) -> Iterator[Finding]:
    yield from _file_name(seen)
    yield from _needs_front_matter(seen)
    yield from _needs_description(seen)
    if "name-missing" in seen.codes:
        yield Outcome.DROPPED, "it has no name"
    if "not-yaml" in seen.traits:
        yield Outcome.DEGRADED, "only name and description are read, line by line"
    if "name-format" in seen.codes:
        yield Outcome.DEGRADED, "characters of the name are replaced"


def _vscode(seen: _Seen) -> Iterator[Finding]:
    yield from _file_name(seen)
    yield from _needs_front_matter(seen)
    yield from _needs_description(seen)
    if "not-yaml" in seen.traits:
        yield Outcome.DROPPED, "the front matter is not YAML"
    for code, reason in (
        ("name-missing", "it has no name"),
        ("name-format", "the name is not lower-case words joined by single hyphens"),
        ("name-too-long", f"the name has more than {names.MAX_NAME} characters"),
        ("name-directory", "the name is not the folder's"),
    ):
        if code in seen.codes:
            yield Outcome.DROPPED, reason
    if "description-too-long" in seen.codes:
        yield Outcome.DROPPED, f"the description has more than {names.MAX_DESCRIPTION} characters"


def _skills_ref(seen: _Seen) -> Iterator[Finding]:
    for problem in reference_problems(seen.folder):
        yield (Outcome.DEGRADED if problem.loads else Outcome.DROPPED), problem.message


def _file_name(seen: _Seen) -> Iterator[Finding]:
    if "skill-file-name" in seen.codes:
        yield Outcome.DROPPED, "it looks for SKILL.md, spelled so"


def _needs_front_matter(seen: _Seen) -> Iterator[Finding]:
    if "no-front-matter" in seen.traits:
        yield Outcome.DROPPED, "there is no front matter"


def _needs_description(seen: _Seen) -> Iterator[Finding]:
    if seen.codes & {"description-missing", "description-derived"}:
        yield Outcome.DROPPED, "it has no description"


_RANK = [Outcome.LOADS, Outcome.DEGRADED, Outcome.DROPPED]
_CLIENTS: dict[str, Callable[[_Seen], Iterator[Finding]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "vscode": _vscode,
    "skills-ref": _skills_ref,
}
CLIENTS = tuple(_CLIENTS)
