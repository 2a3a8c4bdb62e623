"""One call in the pipeline: its key in the journal and its row in the audit log."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastmcp.tools.base import ToolResult

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.json_safe import json_safe, text_safe
from butlers.domain.redaction import redactor
from butlers.queue.journal import CallKey
from butlers.sessions.guard import LiveSession
from butlers.tools.call_results import CallRecord, freeze
from butlers.tools.declaration import Effect, ToolSpec


@dataclass(frozen=True, slots=True)
class PipelineCall:
    """One call in the pipeline."""

    name: str  # of the tool or one of its aliases
    spec: ToolSpec
    caller: Caller
    session: LiveSession | None
    arguments: dict[str, Any]
    started: float
    sensitive: frozenset[str] = frozenset()  # arguments whose values are masked in the audit

    @contextmanager
    def key(self) -> Iterator[CallKey | None]:
        """Reserve the call's journal key, and give it back if the call fails."""
        counter = self.session.calls if self.session else None
        if counter is None or self.spec.effect is not Effect.WRITE:
            yield None
            return
        key = counter.next_key(self.spec.name, self.arguments)
        try:
            yield key
        except BaseException:
            counter.give_back(key)
            raise

    def record(
        self,
        result: ToolResult | None = None,
        *,
        replayed: bool = False,
        error: str | None = None,
    ) -> CallRecord:
        answer = freeze(result) if result is not None else None
        written = json.dumps(answer, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
        return CallRecord(
            caller=self.caller,
            tool=self.spec.name,
            arguments=json_safe(self.arguments, self.sensitive),
            ok=error is None,
            duration_ms=round((time.monotonic() - self.started) * 1000),
            replayed=replayed,
            error=error and text_safe(redactor.scrub(error)),
            result_digest=None if answer is None else hashlib.sha256(written).hexdigest(),
            result_bytes=None if answer is None else len(written),
            outside=tuple(sorted(self.session.outside)) if self.session else (),
        )

    @property
    def audited(self) -> bool:
        return self.spec.effect is Effect.WRITE or self.caller.kind is CallerKind.SESSION
