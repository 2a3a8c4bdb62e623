"""Arguments of a call as the audit log stores them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.json_safe import LONGEST, json_safe
from butlers.domain.redaction import MASK

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "api_key",
        "apikey",
        "API-KEY",
        "access_token",
        "secret",
        "pin",
        "Token",
        "secret_key",
        "private_key",
        "api_keys",
        "credentials",
        "bearer",
        "otp",
    ],
)
def test_a_sensitive_argument_is_masked_however_deep(name: str) -> None:
    kept = json_safe({name: "hunter2", "deep": [{name: {"a": "hunter2"}}]})
    assert kept == {name: MASK, "deep": [{name: MASK}]}


@pytest.mark.parametrize("name", ["tokens", "spin", "compass", "secretary", "pinned", "text"])
def test_ordinary_argument_is_not_masked(name: str) -> None:
    assert json_safe({name: "hello"}) == {name: "hello"}


def test_what_a_module_declares_sensitive_is_masked() -> None:
    kept = json_safe({"to": "alice@example.org", "subject": "hi"}, frozenset({"to"}))
    assert kept == {"to": MASK, "subject": "hi"}


def test_missing_sensitive_argument_is_shown_as_none() -> None:
    assert json_safe({"token": None}) == {"token": None}


@given(st.dictionaries(st.text(), JSON))
def test_any_arguments_become_storable_json(arguments: dict[str, object]) -> None:
    written = json.dumps(json_safe(arguments), ensure_ascii=False, allow_nan=False)
    written.encode()
    assert "\\u0000" not in written.replace("\\\\", "")  # but a backslash that was sent may stay
    assert len(written) <= LONGEST + 100
