"""What a refusal of a model's API means, from its words."""

from __future__ import annotations

import pytest

from butlers.domain.session import Outcome, SessionResult
from butlers.runtimes.failures import asked_pause, of_model


@pytest.mark.parametrize(
    "said",
    [
        'status 400: {"type": "invalid_request_error", "message": "the tool \'rate limit\' is unknown"}',
        "unexpected status 422: the text 'usage limit' is too long",
        "code: 404, no such model; did it say overloaded?",
        'error code: 400 INVALID_ARGUMENT "please wait and try again later" is not allowed',
    ],
)
def test_a_request_that_is_wrong_is_not_limited_whatever_it_quotes(said: str) -> None:
    failure = of_model("It", said)
    assert (failure.outcome, failure.retry_after_s) == (Outcome.CRASHED, None)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", None),
        ("status 429: rate limit reached. Please try again in 1.5s.", 1.5),
        ("code: 429 RESOURCE_EXHAUSTED. Please retry in 34.07s.", 34.07),
        ("status 529 overloaded, retry-after: 120", 120.0),
        ("Rate limit reached, try again in 250ms", 0.25),
        ("usage limit reached; try again in 2h", 7200.0),
    ],
)
def test_a_limit_is_one_and_says_how_long(said: str, seconds: float | None) -> None:
    failure = of_model("It", said)
    assert (failure.outcome, failure.retry_after_s) == (Outcome.RATE_LIMITED, seconds)
    assert failure.apply_to(SessionResult(Outcome.OK, "")).retry_after_s == seconds


def test_a_wrong_key_stays_one() -> None:
    assert of_model("It", "status 400: API key not valid").outcome is Outcome.NO_CREDENTIAL


@pytest.mark.parametrize("said", ["", "retry", "retry after lunch", "try again in " + "9" * 400])
def test_a_pause_that_is_none_is_none(said: str) -> None:
    assert asked_pause(said) is None
