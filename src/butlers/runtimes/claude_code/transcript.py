"""What a session of Claude Code said, read from its events.

A session has succeeded when its butler's server was connected at the start and a result without an error
came at the end. The exit code says nothing: a server that is down, and a session that was interrupted,
leave with 0. It was denied when it was refused something and no call of it came through: one that was
refused a shell and then wrote what it was asked to has succeeded, and its denials are told beside.

Events are untrusted: any shape is read for what it holds, and none is a reason to raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from butlers.domain.session import Outcome, SessionResult, ToolCall, Usage
from butlers.process.runner import Event, ProcessEnd
from butlers.runtimes import failures
from butlers.runtimes.claude_code.result import WHO, Ending, plain_usage, total_usage
from butlers.runtimes.failures import Failure
from butlers.runtimes.shapes import count, mapping, mappings, text

CONNECTED = "connected"
NO_SUCH_TOOL = "<tool_use_error>Error: No such tool available"


@dataclass(slots=True)
class _Use:
    """One tool call while it is under way."""

    name: str
    arguments: dict[str, Any]
    own: bool  # a tool of the butler, not of the CLI
    ok: bool = False
    result: Any = None
    refused: bool = False

    @property
    def told(self) -> str:
        """It in a few words: the tool, and what it was to be used on."""
        target = self.arguments.get("command") or self.arguments.get("file_path")
        return f"{self.name}: {target}" if isinstance(target, str) else self.name


@dataclass(slots=True)
class ClaudeTranscript:
    butler: str
    _status: str | None = None  # of the butler's server, at the start
    _model: str | None = None
    _said: str = ""  # the last text
    _trouble: str | None = None  # the kind of API error, as the CLI names it
    _uses: dict[str, _Use] = field(default_factory=dict)
    _turns: dict[str, Usage] = field(default_factory=dict)  # what each took, as far as it is told
    _ending: Ending | None = None
    _retry_ms: int | None = None  # what the model asked it to wait, or it thought right

    # -- reading -----------------------------------------------------------------------------

    def read(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init":
            self._begin(event)
        elif kind == "system" and event.get("subtype") == "api_retry":
            self._retry_ms = count(event.get("retry_delay_ms"))
        elif kind == "assistant":
            self._hear(event)
        elif kind == "user":
            self._learn(event)
        elif kind == "result":
            self._ending = Ending(event)
        return self._ending is not None

    def _begin(self, event: Event) -> None:
        self._model = text(event.get("model"))
        for server in mappings(event.get("mcp_servers")):
            if server.get("name") == self.butler:
                self._status = text(server.get("status"))

    def _hear(self, event: Event) -> None:
        self._trouble = text(event.get("error"))
        message = mapping(event.get("message"))
        if (turn := text(message.get("id"))) and self._trouble is None:
            self._turns[turn] = plain_usage(mapping(message.get("usage")))
        for block in mappings(message.get("content")):
            if block.get("type") == "tool_use" and (key := text(block.get("id"))):
                self._uses[key] = self._use(text(block.get("name")) or "", block.get("input"))
            elif self._trouble is None and (said := text(block.get("text"))):
                self._said = said  # and no error that the CLI puts into the model's mouth

    def _use(self, name: str, arguments: Any) -> _Use:
        prefix = f"mcp__{self.butler}__"
        return _Use(name.removeprefix(prefix), dict(mapping(arguments)), name.startswith(prefix))

    def _learn(self, event: Event) -> None:
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
                if len(results) == 1:  # what is said beside belongs to this one
                    use.result = _structured(event) or use.result

    # -- the outcome ---------------------------------------------------------------------------

    def result(self, ended: ProcessEnd) -> SessionResult:
        result = SessionResult(
            Outcome.OK,
            (self._ending.text if self._ending else None) or self._said,
            tuple(self._call(key, use) for key, use in self._uses.items()),
            self._ending.usage if self._ending else total_usage(self._turns.values()),
            model=self._model,
            denials=self._denials(),
            exit=ended.exit,
        )
        failure = self._failure(ended)
        return failure.of(result) if failure else result

    def _failure(self, ended: ProcessEnd) -> Failure | None:
        if self._ending is None:
            return failures.cut_short(WHO, ended) or failures.of_exit(WHO, ended)
        if self._ending.is_error:
            return self._ending.failure(self._trouble, self._retry_ms)
        if self._status != CONNECTED and not self._reached():
            return failures.unreached(
                WHO, self.butler, f"its server is {self._status or 'missing'}"
            )
        denials = self._denials()
        if denials and not any(use.ok for use in self._uses.values()):
            return failures.refused(denials)
        return None

    def _reached(self) -> bool:
        """A call that came through is proof enough: a server may connect only after the start."""
        return any(use.ok and use.own for use in self._uses.values())

    def _call(self, key: str, use: _Use) -> ToolCall:
        denied = use.refused or (self._ending is not None and key in self._ending.denials)
        return ToolCall(use.name, use.arguments, use.ok, use.result, not use.own, denied)

    def _denials(self) -> tuple[str, ...]:
        seen = [use.told for use in self._uses.values() if use.refused]
        known = {key for key, use in self._uses.items() if use.refused}
        late = self._ending.denials if self._ending else {}
        return (*seen, *(told for key, told in late.items() if key not in known))


def _rejected(event: Event) -> Iterator[str]:
    """The calls that the CLI's permissions or our gate refused."""
    for meta in mappings(event.get("tool_result_meta")):
        decision = mapping(meta.get("permission_decision"))
        if decision.get("decision") == "reject" and (key := text(meta.get("id"))):
            yield key


def _unavailable(use: _Use) -> bool:
    """A built-in tool that this session does not have."""
    return not use.ok and isinstance(use.result, str) and use.result.startswith(NO_SUCH_TOOL)


def _content(block: Mapping[str, Any]) -> Any:
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(text(part.get("text")) or "" for part in mappings(content))
    return content


def _structured(event: Event) -> dict[str, Any] | None:
    found = mapping(event.get("tool_use_result")).get("structuredContent")
    return found if isinstance(found, dict) else None
