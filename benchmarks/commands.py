"""Commands that a person waits for, in CPU time, compared with an interpreter that imports typer."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.helpers import command, new_home, running_fleet
from benchmarks.report import Measured, percentile, report

RUNS = 9
BARE = [sys.executable, "-c", "import typer"]
COMMANDS = (("send", "weight 80.4 kg"), ("status",), ("list",))


def run(_options: argparse.Namespace) -> None:
    with new_home() as home, running_fleet(home) as fleet:
        lists = [BARE, command("--help"), *(command(*words) for words in COMMANDS)]
        bare, listing, *others = _cpu_ms(lists, fleet.environment)
    lines = [Measured("butlers --help", listing, "ms", bare, at_most=3)]
    lines += [
        Measured(f"butlers {words[0]}", taken, "ms", listing, at_most=1.5)
        for words, taken in zip(COMMANDS, others, strict=True)
    ]
    note = "CPU time, median; --help: baseline `import typer`; others: baseline `butlers --help`"
    report("commands", lines, note)


def _cpu_ms(commands: Sequence[list[str]], environment: dict[str, str]) -> list[float]:
    """Return the median CPU time of each command; they take turns, so that load affects all equally."""
    taken: list[list[float]] = [[] for _ in commands]
    for _ in range(RUNS + 1):
        for words, times in zip(commands, taken, strict=True):
            before = _children_s()
            subprocess.run(words, env=environment, check=True, capture_output=True)
            times.append((_children_s() - before) * 1000)
    return [percentile(times[1:], 50) for times in taken]  # the first run compiles


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
