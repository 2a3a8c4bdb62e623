"""Recorded sessions of the pinned CLIs, and what becomes of them when a value in them is not what it was.

A recording is what the CLI said, line by line; the last line is ours and tells how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from butlers.domain.session import Exit, SessionResult
from butlers.process.runner import EndReason, ProcessEnd
from butlers.runtimes.cli import Transcript

FOLDER = Path(__file__).resolve().parents[1] / "unit" / "runtimes" / "transcripts"


@dataclass(frozen=True)
class Recording:
    events: list[dict[str, Any]]
    ended: ProcessEnd

    def read_by(self, transcript: Transcript, ended: ProcessEnd | None = None) -> SessionResult:
        for event in self.events:
            if transcript.read(event):
                break
        return transcript.result(ended or self.ended)


def recording(cli: str, case: str) -> Recording:
    *events, last = map(json.loads, (FOLDER / cli / f"{case}.jsonl").read_text().splitlines())
    end = last["recorded"]
    return Recording(events, ProcessEnd(EndReason.EXITED, Exit(end["exit"], 1.0, end["stderr"])))


def cases(cli: str) -> list[str]:
    return sorted(file.stem for file in (FOLDER / cli).glob("*.jsonl"))


def strange_events(cli: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON with the names and words of that CLI, and its own events with one value replaced."""
    known = [event for case in cases(cli) for event in recording(cli, case).events]
    names, words = _names(known), sorted(_words(known))
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.sampled_from(words)
    )
    values = st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(names) | st.text(max_size=4), inner, max_size=4)
        ),
        max_leaves=12,
    )
    kinds = st.sampled_from(sorted({event["type"] for event in known}))
    made = st.dictionaries(st.sampled_from(names), values, max_size=6)
    typed = st.builds(lambda kind, event: {**event, "type": kind}, kinds, made)
    return made | typed | _mutated(known, values)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in an event."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [path, *(place for key, one in inner for place in _places(one, (*path, key)))]


def _names(events: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(
        {key for event in events for place in _places(event) for key in place if type(key) is str}
    )


def _words(events: Sequence[dict[str, Any]]) -> set[str]:
    """The short texts, which are the ones that a transcript looks for."""
    found = set()
    for event in events:
        for place in _places(event):
            value: Any = event
            for key in place:
                value = value[key]
            if isinstance(value, str) and len(value) < 30:
                found.add(value)
    return found


@st.composite
def _mutated(
    draw: st.DrawFn, known: list[dict[str, Any]], values: st.SearchStrategy[Any]
) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(known))))
    *way, last = draw(st.sampled_from([place for place in _places(event) if place]))
    holder: Any = event
    for key in way:
        holder = holder[key]
    holder[last] = draw(values)
    return event


def assert_sound(result: SessionResult) -> None:
    """Whatever was said, what is made of it has the shape that others rely on."""
    assert isinstance(result.text, str)
    assert result.ok == (result.error is None)
    assert all(isinstance(denial, str) for denial in result.denials)
    assert result.model is None or isinstance(result.model, str)
    for call in result.tool_calls:
        assert isinstance(call.tool, str)
        assert isinstance(call.ok, bool)
        assert isinstance(call.arguments, dict)
    usage = result.usage
    for number in (usage.input_tokens, usage.output_tokens, usage.cached_tokens):
        assert number is None or (type(number) is int and number >= 0)
    assert usage.cost_usd is None
