"""Check the examples of reflexes against the patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.skills.reflexes.positions import FilePosition
from butlers.skills.reflexes.reflex import Reflex, convert
from butlers.skills.reflexes.values import Moment

# Defaults and examples are converted at a fixed moment, so that the result of a check never changes.
CHECK_MOMENT = Moment(datetime(2026, 1, 15, 12, tzinfo=UTC), ZoneInfo("UTC"))


def check_examples(reflex: Reflex, position: FilePosition) -> None:
    """Report each example that its own reflex does not match, and each near miss that it matches."""
    for example in reflex.examples:
        if reflex.match(example, CHECK_MOMENT) is None:
            under = position.under("examples")
            under.error("reflex-example", f"{example[:80]!r} {_why(reflex, example)}")
    for example in reflex.not_examples:
        if reflex.match(example, CHECK_MOMENT) is not None:
            under = position.under("not_examples")
            under.error("reflex-not-example", f"{example[:80]!r} matches, but it must not")


def ambiguities(reflexes: Sequence[Reflex]) -> Iterator[Diagnostic]:
    """Yield a warning for each reflex with an example that an earlier reflex takes."""
    for number, second in enumerate(reflexes):
        for example in second.examples:
            first = next(
                (one for one in reflexes[:number] if one.match(example, CHECK_MOMENT)), None
            )
            if first is not None:
                yield _ambiguous(first, second, example)
                break


def conflicts(reflexes: Sequence[tuple[str, Reflex]]) -> Iterator[Diagnostic]:
    """Yield an error for each example that another butler would take.

    The pairs of butler and reflex are in the order in which triage tries them. Triage sees only the
    patterns, so a match without a conversion counts.
    """
    for butler, reflex in reflexes:
        for example in reflex.examples:
            taker = _first_taker(example, reflexes)
            if taker is not None and taker[0] != butler:
                yield _taken(reflex, example, *taker)


def _first_taker(text: str, reflexes: Sequence[tuple[str, Reflex]]) -> tuple[str, Reflex] | None:
    for butler, reflex in reflexes:
        if any(trigger.matches(text) for trigger in reflex.triggers):
            return butler, reflex
    return None


def _taken(reflex: Reflex, example: str, butler: str, other: Reflex) -> Diagnostic:
    return Diagnostic(
        "reflex-conflict",
        Severity.ERROR,
        f"{example[:80]!r} goes to {butler}, whose {other.skill}/{other.name} matches it too",
        reflex.file,
        entry=reflex.name,
        hint="make one of the two patterns narrower",
    )


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
    matched = (trigger.match(example) for trigger in reflex.triggers)
    captured = next((found for found in matched if found is not None), None)
    if captured is None:
        return "does not match the pattern"
    for name, rule in reflex.groups.items():
        written = captured.get(name)
        if written and convert(written, rule, CHECK_MOMENT) is None:
            return f"matches, but its {name} {written[:40]!r} is not a {rule.type}"
    return "matches, but a required group is missing"
