"""Print results as a table with ratios, and write one JSON file per benchmark."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Measured:
    """One result: name, value, unit, baseline of the same run, and bounds of the ratio."""

    what: str
    value: float
    unit: str
    baseline: float | None = None
    at_most: float | None = None  # of the ratio
    at_least: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None

    @property
    def bound(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"

    @property
    def broken(self) -> bool:
        if self.ratio is None:
            return False
        over = self.at_most is not None and self.ratio > self.at_most
        return over or (self.at_least is not None and self.ratio < self.at_least)


def report(name: str, lines: Sequence[Measured], note: str) -> None:
    print(f"\n== {name}: {note}")
    width = max(len(line.what) for line in lines)
    print(f"{'':{width}}  {'measured':>14}  {'baseline':>14}  {'ratio':>7}  {'bound':>7}")
    for line in lines:
        baseline = f"{line.baseline:,.3g} {line.unit}" if line.baseline else ""
        ratio = f"{line.ratio:.2f} x" if line.ratio else ""
        shown = f"{line.value:,.3g} {line.unit}"
        verdict = "  BROKEN" if line.broken else ""
        cells = f"{shown:>14}  {baseline:>14}  {ratio:>7}  {line.bound:>7}{verdict}"
        print(f"{line.what:{width}}  {cells}")
    _keep(name, lines, note)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _keep(name: str, lines: Sequence[Measured], note: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    taken = datetime.now(UTC)
    document = {
        "benchmark": name,
        "note": note,
        "taken_at": taken.isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "load": os.getloadavg(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "lines": [{**asdict(line), "ratio": line.ratio, "broken": line.broken} for line in lines],
    }
    path = RESULTS / f"{name}-{taken:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
