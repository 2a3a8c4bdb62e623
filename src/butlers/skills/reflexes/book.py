"""All reflexes of one butler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from butlers.domain.diagnostic import Diagnostic
from butlers.skills.reflexes.converted import Moment
from butlers.skills.reflexes.reflex import Reflex, ReflexMatch


@dataclass(frozen=True, slots=True)
class ReflexBook:
    reflexes: tuple[Reflex, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """What the butler advertises to the Switchboard."""
        return tuple(reflex.pattern for reflex in self.reflexes)

    def match(self, text: str, now: datetime, zone: ZoneInfo) -> ReflexMatch | None:
        """The first reflex that takes the whole message; ``now`` must be aware."""
        moment = Moment(now, zone)
        for reflex in self.reflexes:
            found = reflex.match(text, moment)
            if found is not None:
                return found
        return None
