"""Predict how other clients treat a SKILL.md: load it, load less of it, or drop it silently.

The table follows their documentation and source code. `skills-ref` is compared with the real program
in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from butlers.skills.check.reference_rules import reference_problems
from butlers.skills.formats.base import Reading
from butlers.skills.names import MAX_DESCRIPTION, MAX_NAME
from butlers.skills.skill import SkillSpec

_CLAUDE_LISTING = 1_536


class ClientOutcome(StrEnum):
    """Outcomes from best to worst."""

    LOADS = "loads"
    DEGRADED = "degraded"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ClientVerdict:
    client: str
    outcome: ClientOutcome
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientRule:
    """Outcome and reason if the skill has one of the features: a finding's code, a trait of its
    front matter, or one that ``_features`` adds."""

    features: frozenset[str]
    outcome: ClientOutcome
    reason: str


def _drops(feature: str, reason: str) -> ClientRule:
    return ClientRule(frozenset(feature.split()), ClientOutcome.DROPPED, reason)


def _degrades(feature: str, reason: str) -> ClientRule:
    return ClientRule(frozenset(feature.split()), ClientOutcome.DEGRADED, reason)


_EXACT_FILE_NAME = _drops("skill-file-name", "only the exact file name SKILL.md is found")
_FRONT_MATTER = _drops("no-front-matter", "there is no front matter")
_DESCRIPTION = _drops("description-missing description-derived", "there is no description")
_NAME = _drops("name-missing", "there is no name")
_SHORT_NAME = _drops("name-too-long", f"the name has more than {MAX_NAME} characters")

_RULES: dict[str, tuple[ClientRule, ...]] = {
    "claude": (
        _EXACT_FILE_NAME,
        _degrades("not-yaml", "the front matter is not YAML; its fields are not read"),
        _degrades(
            "description-over-claude-listing",
            f"the listing cuts descriptions at {_CLAUDE_LISTING} characters",
        ),
        _degrades("name-directory", "the folder's name is used instead of the name"),
    ),
    "codex": (
        _EXACT_FILE_NAME,
        _FRONT_MATTER,
        _drops("linked-file", "SKILL.md is a symbolic link"),
        _drops("scanned", "the front matter is not YAML, and quoting does not fix it"),
        _DESCRIPTION,
        _SHORT_NAME,
        _degrades(
            "description-too-long",
            f"the listing cuts descriptions at {MAX_DESCRIPTION} characters",
        ),
    ),
    "gemini": (
        _EXACT_FILE_NAME,
        _FRONT_MATTER,
        _DESCRIPTION,
        _NAME,
        _degrades("not-yaml", "only name and description are read, line by line"),
        _degrades("name-format", "characters of the name are replaced"),
    ),
    "vscode": (
        _EXACT_FILE_NAME,
        _FRONT_MATTER,
        _DESCRIPTION,
        _drops("not-yaml", "the front matter is not YAML"),
        _NAME,
        _drops("name-format", "the name is not lower-case words joined by single hyphens"),
        _SHORT_NAME,
        _drops("name-directory", "name and folder name differ"),
        _drops(
            "description-too-long", f"the description has more than {MAX_DESCRIPTION} characters"
        ),
    ),
    "skills-ref": (),  # its rules are in reference_rules
}
CLIENTS = tuple(_RULES)


def client_verdict(client: str, folder: Path, reading: Reading) -> ClientVerdict:
    """Return the client's outcome for this folder, with every reason."""
    if reading.skill is None or not reading.skill.has_skill_md:
        return ClientVerdict(client, ClientOutcome.DROPPED, ("there is no SKILL.md",))
    if client == "skills-ref":
        found = list(_skills_ref(folder))
    else:
        features = _features(folder, reading, reading.skill)
        found = [
            (rule.outcome, rule.reason)
            for rule in _RULES[client]
            if not rule.features.isdisjoint(features)
        ]
    order = list(ClientOutcome)
    worst = max((outcome for outcome, _ in found), key=order.index, default=ClientOutcome.LOADS)
    return ClientVerdict(client, worst, tuple(reason for _, reason in found))


def _features(folder: Path, reading: Reading, skill: SkillSpec) -> set[str]:
    features = {*reading.codes(), *reading.traits}
    if (folder / "SKILL.md").is_symlink():
        features.add("linked-file")
    if len(skill.description) > _CLAUDE_LISTING:
        features.add("description-over-claude-listing")
    return features


def _skills_ref(folder: Path) -> Iterator[tuple[ClientOutcome, str]]:
    for problem in reference_problems(folder):
        outcome = ClientOutcome.DEGRADED if problem.loads else ClientOutcome.DROPPED
        yield outcome, problem.message
