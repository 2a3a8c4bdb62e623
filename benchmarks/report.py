"""How results are shown and kept: a table with ratios, and one JSON file per benchmark."""

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
    """One line: what was measured, in which unit, and what the same run's baseline took."""

    what: str
    value: float
    unit: str
    baseline: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None


def report(name: str, lines: Sequence[Measured], note: str) -> None:
    print(f"\n== {name}: {note}")
    width = max(len(line.what) for line in lines)
    print(f"{'':{width}}  {'measured':>14}  {'baseline':>14}  {'ratio':>7}")
    for line in lines:
        baseline = f"{line.baseline:,.3g} {line.unit}" if line.baseline else ""
        ratio = f"{line.ratio:.2f} x" if line.ratio else ""
        shown = f"{line.value:,.3g} {line.unit}"
        print(f"{line.what:{width}}  {shown:>14}  {baseline:>14}  {ratio:>7}")
    _keep(name, lines, note)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
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
        "lines": [{**asdict(line), "ratio": line.ratio} for line in lines],
    }
    path = RESULTS / f"{name}-{taken:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
