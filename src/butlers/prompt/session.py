"""What is remembered from one evaluation to the next: which sections were opened."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from threading import Lock
from uuid import UUID, uuid4

from butlers.domain.clock import Clock, SystemClock
from butlers.prompt.events import InProcessEventBus
from butlers.prompt.section import SectionVisibility


class Session:
    def __init__(
        self,
        *,
        bus: InProcessEventBus | None = None,
        session_id: UUID | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.bus = bus or InProcessEventBus()
        self.session_id = session_id or uuid4()
        self._clock = clock or SystemClock()
        self.created_at = self.now()
        self._visibility: dict[tuple[str, str], dict[str, SectionVisibility]] = {}
        self._lock = Lock()

    def now(self) -> datetime:
        return self._clock.now()

    def visibility(self, ns: str, key: str) -> Mapping[str, SectionVisibility]:
        """By the path of a section, for one prompt."""
        with self._lock:
            return dict(self._visibility.get((ns, key), {}))

    def set_visibility(self, ns: str, key: str, overrides: Mapping[str, SectionVisibility]) -> None:
        with self._lock:
            self._visibility.setdefault((ns, key), {}).update(overrides)
