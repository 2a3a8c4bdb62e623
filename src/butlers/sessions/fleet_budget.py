"""The whole fleet's budget for a day: a file of the home that every butler's process writes under a lock.

The butlers' own ledgers are their session logs, which are walled from each other. Here each session has a
line when it is reserved and another when it has ended; its last line counts, so one whose daemon was killed
counts as reserved.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

from butlers.config.files import PRIVATE_FILE, make_private_folder
from butlers.config.fleet import FleetConfig
from butlers.sessions.limit import Claim, Limit
from butlers.sessions.log_rows import Spent

FOLDER = "budget"
KEPT = 31  # days


@dataclass(frozen=True, slots=True)
class FleetBudget:
    home: Path
    limit: Limit
    _open: dict[UUID, tuple[Path, Claim]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, fleet: FleetConfig, home: Path) -> FleetBudget:
        hint = "raise daily_usd or daily_tokens in fleet.toml, or wait until tomorrow"
        zone = ZoneInfo(fleet.timezone)
        whose = "the fleet's budget for today"
        return cls(home, Limit(whose, fleet.daily_usd, fleet.daily_tokens, zone, hint))

    def reserve(self, session_id: UUID, claim: Claim, now: datetime) -> None:
        """Take it out of the day, or raise that nothing is left."""
        if not self.limit.exists:
            return
        path = self.home / FOLDER / f"{self.limit.day_of(now):%Y-%m-%d}.jsonl"
        if not path.exists():
            self._begin_day(path)
        with _locked(path) as descriptor:
            self.limit.check(_sum(path), claim, now)
            _write(descriptor, session_id, claim)
        self._open[session_id] = (path, claim)

    def settle(self, session_id: UUID, used: Claim | None, *, at_least: bool = False) -> None:
        """What it really took; None: nobody knows. ``at_least``: and maybe more, which nobody counted."""
        path, reserved = self._open.pop(session_id, (None, None))
        if path is None or reserved is None or used is None:
            return
        if at_least:
            usd = max((one for one in (used.usd, reserved.usd) if one is not None), default=None)
            used = Claim(max(used.tokens, reserved.tokens), usd)
        with _locked(path) as descriptor:
            _write(descriptor, session_id, used)

    def _begin_day(self, path: Path) -> None:
        make_private_folder(path.parent)
        for old in sorted(path.parent.glob("*.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Held for as long as one line takes; the kernel lets go when its holder is killed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, session_id: UUID, claim: Claim) -> None:
    usd = None if claim.usd is None else str(claim.usd)
    os.write(descriptor, f"{json.dumps([str(session_id), claim.tokens, usd])}\n".encode())


def _sum(path: Path) -> Spent:
    last: dict[str, Claim] = {}
    for line in path.read_text().splitlines():
        try:
            session_id, tokens, usd = json.loads(line)
        except ValueError:
            continue  # torn by a kill: its writer never had the answer that it may run
        last[session_id] = Claim(tokens, None if usd is None else Decimal(usd))
    return Spent(
        sum(one.tokens for one in last.values()),
        sum((one.usd or Decimal(0) for one in last.values()), Decimal(0)),
        sum(one.tokens for one in last.values() if one.usd is None),
    )
