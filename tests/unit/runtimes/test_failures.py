"""Classification of a model API's refusals by their text."""

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
def test_invalid_request_is_not_a_rate_limit(said: str) -> None:
    failure = of_model("It", said)
    assert (failure.outcome, failure.retry_after_s) == (Outcome.REJECTED, None)


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
def test_rate_limit_is_recognized_with_its_delay(said: str, seconds: float | None) -> None:
    failure = of_model("It", said)
    assert (failure.outcome, failure.retry_after_s) == (Outcome.RATE_LIMITED, seconds)
    assert failure.apply_to(SessionResult(Outcome.OK, "")).retry_after_s == seconds


def test_wrong_key_is_a_missing_credential_on_every_cli() -> None:
    assert of_model("It", "status 400: API key not valid").outcome is Outcome.NO_CREDENTIAL


@pytest.mark.parametrize("said", ["", "retry", "retry after lunch", "try again in " + "9" * 400])
def test_text_without_a_delay_has_no_retry_after(said: str) -> None:
    assert asked_pause(said) is None
