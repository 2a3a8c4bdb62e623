"""The script of a fake model, step by step.

As JSON, inside a prompt:

    {"text": "done"}                                    say it, and end
    {"tool": "state_set", "args": {..}}                 call the offered tool whose name ends so
    {"tool": "Bash", "args": {..}, "anyway": true}      call it though it is not on offer
    {"tools": [{"tool": .., "args": ..}, ..]}           several at once
    {"status": 529, "body": {..}, "times": 1}           fail; with ``times`` only so often
    {"quote": "[A-Z]{8}"}                               say what of the tools' results matches
    {"hang": true}                                      do not answer until the test releases it
    "sleep": seconds                                    may be added to any of them
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MARK = "[[script:"
OVER = "The script is over."
FAILED = {"type": "error", "error": {"type": "fake_error", "message": "The fake model fails."}}


@dataclass(frozen=True)
class Say:
    text: str
    sleep: float = 0.0


@dataclass(frozen=True)
class Call:
    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    anyway: bool = False  # also when it is not on offer, as a model that was talked into it would


class Use:
    """Tool calls: one by name and arguments, or several as ``Call``s; ``saying`` is said before them."""

    def __init__(
        self, *what: str | Call, sleep: float = 0.0, saying: str = "", **args: Any
    ) -> None:
        self.calls = tuple(one if isinstance(one, Call) else Call(one, args) for one in what)
        self.sleep = sleep
        self.saying = saying


@dataclass(frozen=True)
class Fail:
    status: int
    body: Mapping[str, Any] = field(default_factory=lambda: FAILED)
    times: int | None = None  # None: always
    headers: Mapping[str, str] = field(default_factory=dict)
    sleep: float = 0.0


@dataclass(frozen=True)
class Quote:
    """Say what it was told: the first match in the results of its calls, the last result first."""

    quote: str
    sleep: float = 0.0

    def text(self, results: Sequence[str]) -> str:
        found = (re.search(self.quote, result) for result in reversed(results))
        return next((match[0] for match in found if match), "nothing like it")


@dataclass(frozen=True)
class Hang:
    sleep: float = 0.0


@dataclass(frozen=True)
class Cut:
    """Break the connection in the middle of an answer."""

    times: int | None = None  # None: always
    sleep: float = 0.0


@dataclass(frozen=True)
class Garble:
    """Answer with bytes that are no answer of this API."""

    times: int | None = None  # None: always
    sleep: float = 0.0


Step = Say | Use | Fail | Quote | Hang | Cut | Garble
Script = Sequence[Step]


def next_step(script: Script, results: int, failures: Mapping[int, int]) -> tuple[int, Step]:
    """The step that comes after so many tool results; a failure that was given often enough is over."""
    for number, step in enumerate(script):
        if isinstance(step, Use) and results >= len(step.calls):
            results -= len(step.calls)
        elif not (
            isinstance(step, Fail | Cut | Garble)
            and step.times is not None
            and failures.get(number, 0) >= step.times
        ):
            return number, step
    return len(script), Say(OVER)


def found_in(text: str) -> Script | None:
    """The last script in a text, or None."""
    found: Script | None = None
    for mark in re.finditer(re.escape(MARK), text):
        try:
            steps, _ = json.JSONDecoder().raw_decode(text, mark.end())
        except ValueError:
            continue
        found = [from_json(step) for step in steps]
    return found


def in_prompt(*steps: Step) -> str:
    """A script as it stands in a prompt."""
    return f"{MARK}{json.dumps([to_json(step) for step in steps])}]]"


def from_json(step: Mapping[str, Any]) -> Step:
    sleep = float(step.get("sleep", 0))
    if "tool" in step or "tools" in step:
        calls = step.get("tools") or [step]
        return Use(
            *(Call(one["tool"], one.get("args", {}), one.get("anyway", False)) for one in calls),
            sleep=sleep,
        )
    if "status" in step:
        return Fail(step["status"], step.get("body", FAILED), step.get("times"), sleep=sleep)
    if "quote" in step:
        return Quote(step["quote"], sleep)
    return Hang(sleep) if step.get("hang") else Say(step["text"], sleep)


def to_json(step: Step) -> dict[str, Any]:
    if isinstance(step, Use):
        return {"tools": [asdict(call) for call in step.calls], "sleep": step.sleep}
    return {**asdict(step), **({"hang": True} if isinstance(step, Hang) else {})}
