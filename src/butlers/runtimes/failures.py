"""Why a session failed, in one word and one sentence, from what its CLI said last."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from butlers.domain.session import Outcome, SessionResult
from butlers.process.runner import EndReason, ProcessEnd

STOPPED = "The session was stopped."
SAID = 400  # of a long message, what a person will still read

_STATUS = r"(?:status|code)\W{0,6}"
# The first that is found decides. Words stand before numbers: a wrong key is a 400 at one vendor and a 401
# at the next, and an account without money is a 429 that no waiting will cure.
_SIGNS: tuple[tuple[re.Pattern[str], Outcome], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), outcome)
    for pattern, outcome in (
        (
            r"insufficient_quota|billing_hard_limit|quota exceeded\. check"
            r"|credit balance is too low|insufficient credits|payment required",
            Outcome.OVER_BUDGET,
        ),
        (
            r"api[ _]key[ _](not )?(in)?valid|invalid_api_key|incorrect api key",
            Outcome.NO_CREDENTIAL,
        ),
        (rf"{_STATUS}40[13]\b|unauthenticated|permission_denied", Outcome.NO_CREDENTIAL),
        # A request that is wrong stays wrong, whatever words its refusal quotes.
        (rf"{_STATUS}4(00|04|13|22)\b|invalid_request_error|invalid_argument", Outcome.CRASHED),
        (
            rf"{_STATUS}(429|503|529)\b|resource_exhausted|overloaded|at capacity",
            Outcome.RATE_LIMITED,
        ),
        (r"rate limit|usage limit|please wait and try again later", Outcome.RATE_LIMITED),
    )
)
_PAUSE = re.compile(
    r"(?i:retry|try again)[ _-](?i:after|in)\W{0,6}"
    r"(?P<number>\d{1,6}(\.\d{1,6})?)(?![\d.]*\d)\s*(?P<unit>ms|min|s|m|h)?(?![a-z])"
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LATE = {
    EndReason.NEVER_BEGAN: "said nothing within the time it has to start",
    EndReason.FELL_SILENT: "fell silent",
    EndReason.TOOK_TOO_LONG: "took longer than a session may",
    EndReason.OUTPUT_TOO_LARGE: "wrote more output than a session may",
}


@dataclass(frozen=True, slots=True)
class Failure:
    outcome: Outcome
    error: str
    retry_after_s: float | None = None

    def of(self, result: SessionResult) -> SessionResult:
        return replace(
            result, outcome=self.outcome, error=self.error, retry_after_s=self.retry_after_s
        )


def cut_short(who: str, ended: ProcessEnd) -> Failure | None:
    """Whether we ended it, or it never was; None when it left by itself."""
    if ended.reason is EndReason.NOT_FOUND:
        return Failure(Outcome.CRASHED, f"{who} could not be started: {ended.exit.stderr}")
    if ended.reason is EndReason.EXITED:
        return None
    if ended.reason is EndReason.STOPPED:
        return Failure(Outcome.CANCELLED, STOPPED)
    after = f"after {ended.exit.seconds:.0f} s"
    return Failure(Outcome.TIMED_OUT, f"{who} {_LATE[ended.reason]}, and was ended {after}")


def of_model(who: str, message: str) -> Failure:
    """What the model's API answered instead of thinking."""
    for sign, outcome in _SIGNS:
        if sign.search(message):
            after_s = asked_pause(message) if outcome is Outcome.RATE_LIMITED else None
            return Failure(outcome, f"{who} was refused by its model: {brief(message)}", after_s)
    return Failure(Outcome.CRASHED, f"{who} failed: {brief(message)}")


def asked_pause(message: str) -> float | None:
    """How long to wait, where the refusal says so; in seconds."""
    found = _PAUSE.search(message)
    return float(found["number"]) * _UNITS[found["unit"] or "s"] if found else None


def of_exit(who: str, ended: ProcessEnd) -> Failure:
    """It left without having said how it ended."""
    last = ended.exit.stderr.strip().rpartition("\n")[2]
    said = f": {brief(last)}" if last else ""
    return Failure(Outcome.CRASHED, f"{who} left with {ended.exit.code} and no result{said}")


def unreached(who: str, butler: str, why: str = "") -> Failure:
    because = f": {brief(why)}" if why else ""
    return Failure(Outcome.MCP_UNAVAILABLE, f"{who} did not reach {butler}{because}")


def refused(denials: tuple[str, ...]) -> Failure:
    tried = "; ".join(denials)
    return Failure(Outcome.DENIED, f"It was refused what it tried, and did nothing else: {tried}")


def brief(message: str) -> str:
    """One line of it."""
    line = " ".join(message.split())
    return line if len(line) <= SAID else f"{line[:SAID]}…"
