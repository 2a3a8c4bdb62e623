"""Check the examples of reflexes against the patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from zoneinfo import ZoneInfo

from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.skills.reflexes.positions import FilePosition
from butlers.skills.reflexes.reflex import Reflex, convert
from butlers.skills.reflexes.values import Moment

# Defaults and examples are converted at a fixed moment, so that the result of a check never changes.
CHECK_MOMENT = Moment(datetime(2026, 1, 15, 12, tzinfo=UTC), ZoneInfo("UTC"))


def check_examples(reflex: Reflex, position: FilePosition) -> None:
    """Report each example that its own reflex does not match."""
    for example in reflex.examples:
        if reflex.match(example, CHECK_MOMENT) is None:
            position.error("reflex-example", f"{example[:80]!r} {_why(reflex, example)}")


def ambiguities(reflexes: Sequence[Reflex]) -> Iterator[Diagnostic]:
    """Yield a warning for each pair that matches the same example, at the second of the pair."""
    for first, second in combinations(reflexes, 2):
        example = _shared_example(first, second)
        if example is not None:
            yield _ambiguous(first, second, example)


def _shared_example(first: Reflex, second: Reflex) -> str | None:
    for owner, other in ((first, second), (second, first)):
        for example in owner.examples:
            if other.match(example, CHECK_MOMENT) is not None:
                return example
    return None


def _ambiguous(first: Reflex, second: Reflex, example: str) -> Diagnostic:
    message = f"{example[:80]!r} also matches {first.skill}/{first.name}, which comes first"
    return Diagnostic(
        "reflex-ambiguous",
        Severity.WARNING,
        message,
        second.file,
        entry=second.name,
        hint="make one of the two patterns narrower",
    )


def _why(reflex: Reflex, example: str) -> str:
    captured = reflex.trigger.match(example)
    if captured is None:
        return "does not match the pattern"
    for name, rule in reflex.groups.items():
        written = captured[name]
        if written and convert(written, rule, CHECK_MOMENT) is None:
            return f"matches, but its {name} {written[:40]!r} is not a {rule.type}"
    return "matches, but a required group is missing"
