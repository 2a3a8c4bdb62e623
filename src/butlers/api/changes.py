"""Log of changes that the dashboard makes without a butler's tool: secrets, imports, sign-ins.

One JSON line per change, without any value of a secret. Changes through tools are in the butlers' own audit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from butlers.api.fleet import Record
from butlers.config.files import exclusive_lock, make_private_folder
from butlers.domain.clock import Clock

MAX_BYTES = 4 * 1024 * 1024  # then the older half is dropped


class ChangeLog:
    def __init__(self, home: Path, clock: Clock) -> None:
        self._folder = home / "dashboard"
        self._path = self._folder / "changes.jsonl"
        self._clock = clock

    def add(self, what: str, **details: object) -> None:
        """Append a change. ``details`` must not hold a secret."""
        line = json.dumps({"at": self._clock.now().isoformat(), "what": what, "details": details})
        make_private_folder(self._folder)
        with exclusive_lock(self._folder / "changes.lock"):
            self._shorten()
            with self._path.open("a", encoding="utf-8") as file:
                self._path.chmod(0o600)
                file.write(f"{line}\n")

    def newest(self, limit: int) -> list[Record]:
        """Return the newest changes, newest first."""
        return [change for _, change in zip(range(limit), self._backwards(), strict=False)]

    def _backwards(self) -> Iterator[Record]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        for line in reversed(lines):
            try:
                yield json.loads(line)
            except ValueError:
                continue  # cut off by a crash

    def _shorten(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < MAX_BYTES:
            return
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        self._path.write_text("".join(lines[len(lines) // 2 :]), encoding="utf-8")
