"""The error tree: one code each, said once, and the same on both sides of the wire."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.domain import errors
from butlers.domain.errors import ButlersError, ConfigInvalid, PhaseFailed, error_from_wire


def tree(root: type[ButlersError]) -> Iterator[type[ButlersError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


TREE = list(tree(ButlersError))


def test_every_class_has_a_code_and_a_message_of_its_own() -> None:
    assert len(TREE) > 20
    assert [code for code, count in Counter(kind.code for kind in TREE).items() if count > 1] == []
    for kind in TREE:
        assert (kind.__doc__ or "").strip(), kind
        if kind.retryable:
            assert kind.default_hint, f"{kind.__name__} may be retried; when?"


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_wire(kind: type[ButlersError]) -> None:
    rebuilt = error_from_wire(kind.code, "what went wrong", "what to do", kind.retryable)
    assert type(rebuilt) is kind
    assert str(rebuilt) == rebuilt.message == "what went wrong"
    assert (rebuilt.hint, rebuilt.code) == ("what to do", kind.code)
    assert rebuilt.retryable == kind.retryable

    judged = error_from_wire(kind.code, "", None, not kind.retryable)
    assert judged.retryable is not kind.retryable  # as the peer judged it
    assert judged.hint == kind.default_hint
    assert judged.message == (kind.__doc__ or "").strip().splitlines()[0]
    assert kind.retryable is not judged.retryable  # this instance's alone


def test_an_unknown_code_stays_an_error() -> None:
    rebuilt = error_from_wire("from_the_future", "odd", None, True)
    assert type(rebuilt) is ButlersError
    assert (rebuilt.message, rebuilt.retryable) == ("odd", True)


def test_a_config_error_says_where() -> None:
    error = ConfigInvalid(
        "is wrong", path=Path("/x/butler.toml"), key="port", line=3, hint="mend it"
    )
    assert str(error) == "/x/butler.toml:3: is wrong"
    assert (error.key, error.line, error.hint) == ("port", 3, "mend it")
    assert str(ConfigInvalid("is wrong", path=Path("/x"))) == "/x: is wrong"
    assert str(ConfigInvalid()) == (ConfigInvalid.__doc__ or "").strip()


def test_a_failed_phase_passes_the_hint_of_its_cause_on() -> None:
    failed = PhaseFailed("open pool", ConfigInvalid("is wrong", hint="mend it"))
    assert str(failed) == "start-up phase 'open pool' failed: is wrong"
    assert failed.hint == "mend it"
    assert PhaseFailed("open pool", ValueError("odd")).hint is None


def test_a_traceback_shows_the_hint_too() -> None:
    shown = "".join(traceback.format_exception(ButlersError("It is not there.", hint="make it")))
    assert shown.endswith("ButlersError: It is not there.\nhint: make it\n")
    assert "hint" not in "".join(traceback.format_exception(ButlersError("It is not there.")))
