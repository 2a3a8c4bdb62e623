"""Read the events of a Claude Code session.

A session has succeeded if its butler's server was connected at the start and a result without an error came
at the end. The exit code says nothing: it is 0 also when a server is down or a session was interrupted. A
session was denied if something was refused and no call succeeded: one that was refused a shell and then did
its task otherwise has succeeded, and its denials are reported beside.

Events are untrusted: any shape is read for what it contains, and none raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import Event, ProcessEnd
from butlers.runtimes import failures
from butlers.runtimes.failures import SessionFailure, asked_pause, brief, of_model
from butlers.runtimes.formats import count, mapping, mappings, money, text, texts

PROGRAM = "Claude Code"
LIMITS = ("error_max_budget_usd", "error_max_turns")  # set by the owner's own arguments
# Kinds of error that the CLI names without a request: a session without a key sends none.
NO_CREDENTIAL = ("authentication_failed", "oauth_org_not_allowed")
RATE_LIMITED = ("rate_limit", "overloaded")
UNKNOWN_PRICE = "unknown"
CONNECTED = "connected"
NO_SUCH_TOOL = "<tool_use_error>Error: No such tool available"


class Ending:
    """The last event of a session: its answer or failure, and its usage."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        self._event = event

    @property
    def is_error(self) -> bool:
        """Check both fields: the subtype is ``success`` also if the model's API failed."""
        return self._event.get("is_error") is not False or self._event.get("subtype") != "success"

    @property
    def text(self) -> str | None:
        return None if self.is_error else text(self._event.get("result"))

    @property
    def denials(self) -> dict[str, str]:
        """Refused tools, by the id of the call."""
        found = {}
        for denial in mappings(self._event.get("permission_denials")):
            key, name = text(denial.get("tool_use_id")), text(denial.get("tool_name"))
            if key and name:
                found[key] = name
        return found

    def failure(self, kind: str | None, retry_ms: int | None = None) -> SessionFailure:
        """``kind`` is the kind of the last error, as the CLI names it."""
        reason = self._reason()
        outcome = self._outcome(kind, reason)
        if outcome is not Outcome.RATE_LIMITED:
            return SessionFailure(outcome, reason)
        after_s = asked_pause(reason) or (retry_ms or 0) / 1000
        return SessionFailure(outcome, reason, after_s or None)

    def _outcome(self, kind: str | None, reason: str) -> Outcome:
        if self._event.get("subtype") in LIMITS:
            return Outcome.OVER_BUDGET
        status = count(self._event.get("api_error_status"))
        outcome = of_model(PROGRAM, f"status {status}: {reason}" if status else reason).outcome
        if outcome is Outcome.CRASHED and kind in NO_CREDENTIAL:
            return Outcome.NO_CREDENTIAL
        if outcome is Outcome.CRASHED and kind in RATE_LIMITED:
            return Outcome.RATE_LIMITED
        return outcome

    def _reason(self) -> str:
        message = text(self._event.get("result")) or "; ".join(texts(self._event.get("errors")))
        why = message or text(self._event.get("subtype")) or "no reason given"
        return f"{PROGRAM} failed: {brief(why)}"

    @property
    def usage(self) -> Usage:
        """Sum the usage by model: the plain counts are zero if a limit ended the session."""
        models = list(mapping(self._event.get("modelUsage")).values())
        if not models:
            usage = plain_usage(mapping(self._event.get("usage")))
            return replace(usage, cost_usd=self._cost([]))
        cached = _sum(models, "cacheReadInputTokens")
        written = _sum(models, "cacheCreationInputTokens")
        return Usage(
            input_tokens=_total(_sum(models, "inputTokens"), cached, written),
            output_tokens=_sum(models, "outputTokens"),
            cached_tokens=cached,
            cost_usd=self._cost(models),
            written_tokens=written or 0,
        )

    def _cost(self, models: list[Any]) -> Decimal | None:
        """Return None for a model of unknown price: the CLI then assumes the most expensive one."""
        if any(mapping(model).get("costBasis") == UNKNOWN_PRICE for model in models):
            return None
        return money(self._event.get("total_cost_usd"))


def plain_usage(usage: Mapping[str, Any]) -> Usage:
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=_total(count(usage.get("input_tokens")), cached, written),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=cached,
        written_tokens=written or 0,
    )


def total_usage(turns: Iterable[Usage]) -> Usage:
    """Sum the turns of a session that was cut short. The output of its last turn may be incomplete."""
    every = list(turns)
    return Usage(
        input_tokens=_total(*(turn.input_tokens for turn in every)),
        output_tokens=_total(*(turn.output_tokens for turn in every)),
        cached_tokens=_total(*(turn.cached_tokens for turn in every)),
        written_tokens=sum(turn.written_tokens for turn in every),
    )


def _sum(models: list[Any], name: str) -> int | None:
    return _total(*(count(mapping(model).get(name)) for model in models))


def _total(*counts: int | None) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


@dataclass(slots=True)
class _Use:
    """One tool call."""

    name: str
    arguments: dict[str, Any]
    own: bool  # a tool of the butler, not of the CLI
    ok: bool = False
    result: Any = None
    refused: bool = False

    @property
    def summary(self) -> str:
        """The tool and its command or file."""
        target = self.arguments.get("command") or self.arguments.get("file_path")
        return f"{self.name}: {target}" if isinstance(target, str) else self.name


@dataclass(slots=True)
class ClaudeTranscript:
    butler: str
    _status: str | None = None  # of the butler's server, at the start
    _model: str | None = None
    _text: str = ""  # the last one
    _error_kind: str | None = None  # of the API, as the CLI names it
    _uses: dict[str, _Use] = field(default_factory=dict)
    _turns: dict[str, Usage] = field(default_factory=dict)  # usage of each, as far as reported
    _ending: Ending | None = None
    _retry_ms: int | None = None  # the CLI's delay before its last retry

    # -- reading -----------------------------------------------------------------------------

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init":
            self._begin(event)
        elif kind == "system" and event.get("subtype") == "api_retry":
            self._retry_ms = count(event.get("retry_delay_ms"))
        elif kind == "assistant":
            self._read_assistant(event)
        elif kind == "user":
            self._read_results(event)
        elif kind == "result":
            self._ending = Ending(event)
        return self._ending is not None

    def _begin(self, event: Event) -> None:
        self._model = text(event.get("model"))
        for server in mappings(event.get("mcp_servers")):
            if server.get("name") == self.butler:
                self._status = text(server.get("status"))

    def _read_assistant(self, event: Event) -> None:
        self._error_kind = text(event.get("error"))
        message = mapping(event.get("message"))
        if (turn := text(message.get("id"))) and self._error_kind is None:
            self._turns[turn] = plain_usage(mapping(message.get("usage")))
        for block in mappings(message.get("content")):
            if block.get("type") == "tool_use" and (key := text(block.get("id"))):
                self._uses[key] = self._use(text(block.get("name")) or "", block.get("input"))
            elif self._error_kind is None and (answer := text(block.get("text"))):
                self._text = answer  # but not an error that the CLI reports as a text

    def _use(self, name: str, arguments: Any) -> _Use:
        prefix = f"mcp__{self.butler}__"
        return _Use(name.removeprefix(prefix), dict(mapping(arguments)), name.startswith(prefix))

    def _read_results(self, event: Event) -> None:
        results = [
            block
            for block in mappings(mapping(event.get("message")).get("content"))
            if block.get("type") == "tool_result"
        ]
        refused = set(_rejected(event))
        for block in results:
            key = text(block.get("tool_use_id")) or ""
            if (use := self._uses.get(key)) is not None:
                use.ok = not block.get("is_error")
                use.result = _content(block)
                use.refused = key in refused or _unavailable(use)
                if len(results) == 1:  # the structured content belongs to this one
                    use.result = _structured(event) or use.result

    # -- the outcome ---------------------------------------------------------------------------

    def result(self, ended: ProcessEnd) -> SessionResult:
        result = SessionResult(
            Outcome.OK,
            (self._ending.text if self._ending else None) or self._text,
            tuple(self._call(key, use) for key, use in self._uses.items()),
            self._ending.usage if self._ending else total_usage(self._turns.values()),
            model=self._model,
            denials=self._denials(),
            exit=ended.exit,
        )
        return failures.conclude(result, self._failure(ended))

    def _failure(self, ended: ProcessEnd) -> SessionFailure | None:
        if self._ending is None:
            return failures.cut_short(PROGRAM, ended) or failures.of_exit(PROGRAM, ended)
        if self._ending.is_error:
            return self._ending.failure(self._error_kind, self._retry_ms)
        if self._status != CONNECTED and not self._reached():
            return failures.unreached(
                PROGRAM, self.butler, f"its server is {self._status or 'missing'}"
            )
        return None

    def _reached(self) -> bool:
        """Return whether a call succeeded: a server may connect after the start."""
        return any(use.ok and use.own for use in self._uses.values())

    def _call(self, key: str, use: _Use) -> ToolCall:
        denied = use.refused or (self._ending is not None and key in self._ending.denials)
        return ToolCall(use.name, use.arguments, use.ok, use.result, not use.own, denied)

    def _denials(self) -> tuple[str, ...]:
        seen = [use.summary for use in self._uses.values() if use.refused]
        known = {key for key, use in self._uses.items() if use.refused}
        late = self._ending.denials if self._ending else {}
        return (*seen, *(name for key, name in late.items() if key not in known))


def _rejected(event: Event) -> Iterator[str]:
    """Yield the calls that the CLI's permissions or our gate refused."""
    for meta in mappings(event.get("tool_result_meta")):
        decision = mapping(meta.get("permission_decision"))
        if decision.get("decision") == "reject" and (key := text(meta.get("id"))):
            yield key


def _unavailable(use: _Use) -> bool:
    """Return whether it is a built-in tool that this session does not have."""
    return not use.ok and isinstance(use.result, str) and use.result.startswith(NO_SUCH_TOOL)


def _content(block: Mapping[str, Any]) -> Any:
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(text(part.get("text")) or "" for part in mappings(content))
    return content


def _structured(event: Event) -> dict[str, Any] | None:
    found = mapping(event.get("tool_use_result")).get("structuredContent")
    return found if isinstance(found, dict) else None
