"""The words of a question: a summary made from the arguments, groups of equal questions, buttons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

from butlers.domain.approval import ActionStatus, Question
from butlers.domain.delivery import DeliveryAction
from butlers.domain.redaction import redactor
from butlers.modules.approvals.actions import PendingAction

MAX_VALUE = 120  # characters of one argument in a summary
MAX_SUMMARY = 600
MAX_LISTED = 5  # groups in one notification
MAX_OUTCOME = 400


def summarize(butler: str, question: Question) -> str:
    """Return one sentence about the call. Nothing in it is the model's description of the call."""
    if question.summary is not None:
        return _cut(question.summary, MAX_SUMMARY)
    named = ", ".join(f'{name} "{_value(value)}"' for name, value in _given(question.arguments))
    return _cut(
        f"{butler} wants to {question.reason.action}{f': {named}' if named else ''}", MAX_SUMMARY
    )


def _given(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in arguments.items() if value is not None)


def _value(value: Any) -> str:
    return _cut(value if isinstance(value, str) else str(value), MAX_VALUE)


def _cut(text: str, longest: int) -> str:
    """Return the text on one line, without secrets and control characters."""
    words = " ".join(redactor.scrub(text).split())
    plain = "".join(char if char.isprintable() else "�" for char in words)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def ask_text(actions: Sequence[PendingAction], zone: ZoneInfo) -> str:
    """Return one message for all these questions, equal ones together."""
    open_ones = [one for one in actions if one.status is ActionStatus.PENDING]
    late = [one for one in actions if one.status is ActionStatus.EXPIRED]
    return "\n".join([*_ask(open_ones, zone), *_tell_expired(late)])


def _ask(actions: Sequence[PendingAction], zone: ZoneInfo) -> Iterator[str]:
    if not actions:
        return
    groups = _grouped(actions)
    yield "This waits for your approval:" if len(actions) > 1 else "May I?"
    for group in groups[:MAX_LISTED]:
        yield from _lines(group, zone)
    if len(groups) > MAX_LISTED:
        yield f"- and {len(groups) - MAX_LISTED} more: `butlers approvals list`"
    example = actions[0].code
    yield f'Answer "yes {example}" or "no {example}", or use `butlers approvals`.'


def _grouped(actions: Iterable[PendingAction]) -> list[list[PendingAction]]:
    ordered = sorted(actions, key=lambda one: (one.group_key, one.requested_at, one.id))
    return [list(group) for _key, group in groupby(ordered, key=lambda one: one.group_key)]


def _lines(group: Sequence[PendingAction], zone: ZoneInfo) -> Iterator[str]:
    first = group[0]
    codes = ", ".join(one.code for one in group[:MAX_LISTED])
    more = f" ({len(group)} of this kind)" if len(group) > 1 else ""
    undo = "It can be undone for ten minutes." if first.reversible else "It cannot be undone."
    until = min(one.expires_at for one in group).astimezone(zone)
    yield f"- [{codes}]{more} {first.agent_summary}"
    yield f"  Asked because {first.why}. {undo} Open until {until:%-d %B, %H:%M}."


def _tell_expired(actions: Sequence[PendingAction]) -> Iterator[str]:
    if not actions:
        return
    yield "Nobody decided this in time, so it was not done:"
    for one in actions[:MAX_LISTED]:
        yield f"- {one.agent_summary}"
    if len(actions) > MAX_LISTED:
        yield f"- and {len(actions) - MAX_LISTED} more: `butlers approvals list --all`"


def buttons(actions: Sequence[PendingAction]) -> tuple[DeliveryAction, ...]:
    """Return buttons for a single question, or for a group that is decided together."""
    waiting = [one for one in actions if one.status is ActionStatus.PENDING]
    together = waiting and all(one.decides_group for one in waiting)
    if len(waiting) != 1 and not (together and len({one.group_key for one in waiting}) == 1):
        return ()
    code = waiting[0].code
    return (DeliveryAction("Yes", f"/yes {code}"), DeliveryAction("No", f"/no {code}"))


def outcome_text(action: PendingAction, result: dict[str, Any] | None) -> str:
    """Tell the person who asked how it ended."""
    what = action.agent_summary
    if action.status is ActionStatus.REJECTED:
        return f"The owner declined this, so it was not done: {what}"
    if action.status is ActionStatus.EXPIRED:
        return f"The owner did not decide in time, so this was not done: {what}"
    if result is None:
        return f"The owner approved this, and it is being done: {what}"
    if not result.get("success"):
        return f"The owner approved this, but it failed ({result.get('error')}): {what}"
    return f"The owner approved this, and it is done: {what}"


def decision_text(action: PendingAction, now: datetime) -> str:
    """Tell the owner what a decision led to."""
    shown = action.shown(now)
    result = action.execution_result or {}
    if shown["status"] is ActionStatus.EXECUTED and not result.get("success"):
        return f"approved, but it failed: {_cut(str(result.get('error')), MAX_OUTCOME)}"
    undo = f'; "undo {action.code}" takes it back' if action.reversible else ""
    words = {
        ActionStatus.EXECUTED: f"approved and done{undo}",
        ActionStatus.APPROVED: "approved, and being done",
        ActionStatus.REJECTED: "rejected",
    }
    return words.get(shown["status"], str(shown["status"]))
