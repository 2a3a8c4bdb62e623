"""Prompt session: opened sections, and the events that listeners receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

import structlog

from butlers.domain.clock import Clock, SystemClock
from butlers.prompt.section import SectionVisibility

if TYPE_CHECKING:
    from butlers.prompt.template import PromptTemplate

log = structlog.get_logger(__name__)
EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEvent:
    prompt_ns: str
    prompt_key: str
    session_id: UUID | None
    created_at: datetime
    event_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered(PromptEvent):
    text: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsInstalled(PromptEvent):
    """Skills were written or copied into a session's home."""

    inline_skills: tuple[str, ...]
    referenced_skills: tuple[str, ...]
    skills_dir: str

    @property
    def skills(self) -> tuple[str, ...]:
        return self.inline_skills + self.referenced_skills


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillExpanded(PromptEvent):
    """A summarized skill was opened."""

    skill_name: str
    skill_key: str  # its path


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked(PromptEvent):
    tool: str
    success: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted(PromptEvent):
    adapter: str
    text: str


class InProcessEventBus:
    """Event bus that calls listeners in order of subscription and logs their exceptions."""

    def __init__(self) -> None:
        self._listeners: dict[type, list[Callable[[Any], object]]] = {}
        self._lock = Lock()

    def subscribe(self, event: type[EventT], listener: Callable[[EventT], object]) -> None:
        with self._lock:
            self._listeners.setdefault(event, []).append(listener)

    def unsubscribe(self, event: type[EventT], listener: Callable[[EventT], object]) -> bool:
        with self._lock:
            known = self._listeners.get(event, [])
            if listener not in known:
                return False
            known.remove(listener)
            return True

    def publish(self, event: object) -> None:
        with self._lock:
            listeners = tuple(self._listeners.get(type(event), ()))
        for listener in listeners:
            try:
                listener(event)
            except Exception:  # a listener must not end a session
                log.exception("event listener failed", event_type=type(event).__name__)


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

    def publish(
        self, event: type[PromptEvent], template: PromptTemplate[Any], **values: Any
    ) -> None:
        """Publish an event of a prompt in this session."""
        self.bus.publish(
            event(
                prompt_ns=template.ns,
                prompt_key=template.key,
                session_id=self.session_id,
                created_at=self.now(),
                **values,
            )
        )

    def visibility(self, ns: str, key: str) -> Mapping[str, SectionVisibility]:
        """Return the stored visibility of a prompt's sections, by path."""
        with self._lock:
            return dict(self._visibility.get((ns, key), {}))

    def set_visibility(self, ns: str, key: str, overrides: Mapping[str, SectionVisibility]) -> None:
        with self._lock:
            self._visibility.setdefault((ns, key), {}).update(overrides)
