"""Version ranges, and requirements such as `id`, `id@1.2.3` and `id@^1.2`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from semver import Version

from butlers.skills.names import is_id, is_version, lenient_version

_PART = re.compile(
    r"(?P<operator>\^|~|>=|<=|>|<|=|==|!=)?\s*v?"
    r"(?P<major>0|[1-9]\d{0,8}|[xX*])(?:\.(?P<minor>0|[1-9]\d{0,8}|[xX*]))?(?:\.(?P<patch>0|[1-9]\d{0,8}|[xX*]))?",
    re.ASCII,
)
_PADDED = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}", re.ASCII)
_MAX_RANGE = 200


@dataclass(frozen=True, slots=True)
class VersionBound:
    """Versions from ``low`` up to but not including ``high``; None means no limit."""

    low: Version | None = None
    high: Version | None = None

    def holds(self, version: Version) -> bool:
        if self.low is not None and version < self.low:
            return False
        return self.high is None or version < self.high


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A version matches if all bounds of one alternative hold and none of its exclusions does."""

    written: str
    alternatives: tuple[tuple[VersionBound, ...], ...]
    excluded: tuple[tuple[VersionBound, ...], ...] = ()

    def holds(self, version: str | Version) -> bool:
        found = Version.parse(version) if isinstance(version, str) else version
        return any(
            all(bound.holds(found) for bound in bounds)
            and not any(bound.holds(found) for bound in excluded)
            for bounds, excluded in zip(self.alternatives, self.excluded, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """A required skill. Without ``range`` and ``exact`` the latest version is meant."""

    name: str
    range: VersionRange | None = None
    exact: str | None = None

    def holds(self, version: str) -> bool:
        """Return True if the version fits. A pre-release fits a requirement of that version only."""
        if self.exact is not None:
            return version == self.exact
        if self.range is None:
            return True
        return not Version.parse(version).prerelease and self.range.holds(version)

    def __str__(self) -> str:
        wanted = self.exact or (self.range.written if self.range else "")
        return f"{self.name}@{wanted}" if wanted else self.name


def parse_requirement(written: str) -> Requirement | None:
    name, at, wanted = written.strip().partition("@")
    if not is_id(name):
        return None
    if not at:
        return Requirement(name)
    if is_version(wanted):
        return Requirement(name, exact=wanted)
    if _PADDED.fullmatch(wanted):  # three numbers with leading zeros
        return Requirement(name, exact=lenient_version(wanted))
    found = parse_range(wanted)
    return Requirement(name, found) if found else None


def parse_range(written: str) -> VersionRange | None:
    """Parse an npm range without pre-releases: ^1.2, ~1.2.3, >=1 <3, 1.x, `1 || 2`, *."""
    if not written.strip() or len(written) > _MAX_RANGE:
        return None
    alternatives, excluded = [], []
    for alternative in written.split("||"):
        found = _alternative(alternative)
        if found is None:
            return None
        alternatives.append(found[0])
        excluded.append(found[1])
    return VersionRange(written.strip(), tuple(alternatives), tuple(excluded))


def _alternative(written: str) -> tuple[tuple[VersionBound, ...], tuple[VersionBound, ...]] | None:
    bounds: list[VersionBound] = []
    excluded: list[VersionBound] = []
    position, text = 0, written.replace(",", " ").strip()
    if not text:
        return None
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or (part.end() < len(text) and not text[part.end()].isspace()):
            return None
        (excluded if part["operator"] == "!=" else bounds).append(_bound(part))
        position = part.end() + len(text[part.end() :]) - len(text[part.end() :].lstrip())
    return tuple(bounds), tuple(excluded)


def _bound(part: re.Match[str]) -> VersionBound:
    given = [part[name] for name in ("major", "minor", "patch")]
    numbers = []
    for text in given:
        if text is None or text in "xX*":
            break
        numbers.append(int(text))
    if not numbers:
        return VersionBound()
    low = Version(*[*numbers, 0, 0][:3])
    above = _next(numbers)
    match part["operator"]:
        case ">=":
            return VersionBound(low)
        case ">":
            return VersionBound(above)
        case "<":
            return VersionBound(None, low)
        case "<=":
            return VersionBound(None, above)
        case "^":
            leading = next((n for n, value in enumerate(numbers) if value), len(numbers) - 1)
            return VersionBound(low, _next(numbers[: leading + 1]))
        case "~":
            return VersionBound(low, _next(numbers[:2]))
        case _:
            return VersionBound(low, above)


def _next(numbers: list[int]) -> Version:
    """Return the first version after all versions that begin with these numbers."""
    raised = [*numbers[:-1], numbers[-1] + 1]
    return Version(*[*raised, 0, 0][:3])


def newest_first(versions: Iterable[str]) -> tuple[str, ...]:
    """Sort by precedence. Versions that differ in their build only, such as 0.0.0+a, keep their order."""
    return tuple(sorted(versions, key=Version.parse, reverse=True))
