"""Classify the failure of a session from its process and the messages of its CLI."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from butlers.domain.session import Outcome, SessionResult
from butlers.process.runner import EndReason, ProcessEnd

STOPPED = "The session was stopped."
MAX_MESSAGE = 400  # characters that a person will still read

_STATUS = r"(?:status|code)\W{0,6}"
# The first match decides. Words come before numbers: a wrong key is a 400 at one vendor and a 401 at
# another, and an account without credit is a 429 that waiting does not cure.
_SIGNS: tuple[tuple[re.Pattern[str], Outcome], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), outcome)
    for pattern, outcome in (
        (
            r"insufficient_quota|billing_hard_limit|quota exceeded\. check"
            r"|credit balance is too low|insufficient credits|payment required",
            Outcome.NO_CREDIT,
        ),
        (
            r"api[ _]key[ _](not )?(in)?valid|invalid_api_key|incorrect api key",
            Outcome.NO_CREDENTIAL,
        ),
        (
            rf"{_STATUS}40[13]\b|unauthenticated|permission_denied|authentication_error"
            r"|not logged in|please run /login|token (has expired|was revoked)",
            Outcome.NO_CREDENTIAL,
        ),
        # An invalid request stays invalid, whatever words its refusal quotes.
        (rf"{_STATUS}4(00|04|13|22)\b|invalid_request_error|invalid_argument", Outcome.REJECTED),
        (
            rf"{_STATUS}(429|503|529)\b|resource_exhausted|overloaded|at capacity",
            Outcome.RATE_LIMITED,
        ),
        (r"rate limit|usage limit|please wait and try again later", Outcome.RATE_LIMITED),
        (
            rf"{_STATUS}(408|5\d\d)\b|internal server error|bad gateway|gateway time-?out"
            r"|connection (error|refused|reset|closed|lost|timed out)|connectionrefused"
            r"|econnre(fused|set)|etimedout|enotfound|eai_again|epipe|socket hang up|fetch failed"
            r"|network error|stream (disconnected|closed|ended|error)|premature(ly)? close"
            r"|incomplete (response|message|json)|error sending request|request timed out"
            r"|unexpected (end of json|end of input|token)|not valid json|json (parse|at position)"
            r"|api_error|server_error|failed to parse|high demand|temporary errors",
            Outcome.MODEL_UNAVAILABLE,
        ),
    )
)
_PAUSE = re.compile(
    r"(?i:retry|try again)[ _-](?i:after|in)\W{0,6}"
    r"(?P<number>\d{1,6}(\.\d{1,6})?)(?![\d.]*\d)\s*(?P<unit>ms|min|s|m|h)?(?![a-z])"
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LATE = {
    EndReason.NEVER_BEGAN: "sent no event within its startup time",
    EndReason.FELL_SILENT: "sent no more events",
    EndReason.TOOK_TOO_LONG: "took longer than its time limit",
    EndReason.OUTPUT_TOO_LARGE: "wrote too much output",
}


@dataclass(frozen=True, slots=True)
class SessionFailure:
    outcome: Outcome
    error: str
    retry_after_s: float | None = None

    def apply_to(self, result: SessionResult) -> SessionResult:
        return replace(
            result, outcome=self.outcome, error=self.error, retry_after_s=self.retry_after_s
        )


def cut_short(program: str, ended: ProcessEnd) -> SessionFailure | None:
    """Return the failure of a process that did not start or was ended; None if it exited by itself."""
    if ended.reason is EndReason.NOT_FOUND:
        return SessionFailure(
            Outcome.CRASHED, f"{program} could not be started: {ended.exit.stderr}"
        )
    if ended.reason is EndReason.EXITED:
        return None
    if ended.reason is EndReason.STOPPED:
        return SessionFailure(Outcome.CANCELLED, STOPPED)
    after = f"after {ended.exit.seconds:.0f} s"
    return SessionFailure(
        Outcome.TIMED_OUT, f"{program} {_LATE[ended.reason]}, and was ended {after}"
    )


def of_model(program: str, message: str) -> SessionFailure:
    """Return the failure for an error of the model's API."""
    for sign, outcome in _SIGNS:
        if sign.search(message):
            after_s = asked_pause(message) if outcome is Outcome.RATE_LIMITED else None
            return SessionFailure(
                outcome, f"{program} was refused by its model: {brief(message)}", after_s
            )
    return SessionFailure(Outcome.CRASHED, f"{program} failed: {brief(message)}")


def asked_pause(message: str) -> float | None:
    """Return the seconds to wait that a refusal names, if any."""
    found = _PAUSE.search(message)
    return float(found["number"]) * _UNITS[found["unit"] or "s"] if found else None


def of_exit(program: str, ended: ProcessEnd) -> SessionFailure:
    """Return the failure of a process that exited without a result."""
    last = ended.exit.stderr.strip().rpartition("\n")[2]
    message = f": {brief(last)}" if last else ""
    return SessionFailure(
        Outcome.CRASHED, f"{program} exited with {ended.exit.code} and no result{message}"
    )


def unreached(program: str, butler: str, why: str = "") -> SessionFailure:
    because = f": {brief(why)}" if why else ""
    return SessionFailure(Outcome.MCP_UNAVAILABLE, f"{program} did not reach {butler}{because}")


def conclude(result: SessionResult, failure: SessionFailure | None) -> SessionResult:
    """Apply the failure. A session has also failed if it was denied something and no call succeeded."""
    if failure is None and result.denials and not any(call.ok for call in result.tool_calls):
        failure = _refused(result.denials)
    return failure.apply_to(result) if failure else result


def _refused(denials: tuple[str, ...]) -> SessionFailure:
    tried = "; ".join(denials)
    return SessionFailure(
        Outcome.DENIED, f"The session did nothing, because everything it tried was refused: {tried}"
    )


def brief(message: str) -> str:
    """Return it as one line, cut if it is long."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…"
