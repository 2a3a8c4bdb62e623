"""Time to the first answered message: `butlers up` on a fresh home, and `make up` in a new clone.

The baseline is the unavoidable part: creating and starting the same PostgreSQL, and importing the same
libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from benchmarks.helpers import (
    READY,
    ROOT,
    RunningFleet,
    end,
    environment,
    free_offset,
    new_home,
    running_fleet,
    wait_for_line,
)
from benchmarks.report import Measured, report
from butlers.db.embedded.programs import STANDARD_PATH, choose_account, find_binaries

MESSAGE = "weight 80.4 kg"
INSTALL_PATIENCE_S = 1800.0
LIBRARIES = "import fastmcp, asyncpg, alembic"
MILESTONES = {
    "postgres created": "postgres database created",
    "postgres started": "postgres started",
    "modules imported, config read": "config loaded",
    "migrated": "migration applied",
    "every butler ready": "butler ready",
}


def run(options: argparse.Namespace) -> None:
    floor = measure_floor()
    report("start", [*_fresh(floor), *_again()], "seconds after the start of `butlers up`")
    if options.with_install:
        report("install", list(_with_install()), "seconds of `make up` in a new clone")


def measure_floor() -> dict[str, float]:
    """Return the baseline's parts, in seconds."""
    binaries = find_binaries()
    with new_home() as home:
        data = home / "data"
        account = choose_account(binaries / "postgres", home, STANDARD_PATH)

        def timed(*words: str | Path) -> float:
            started = time.monotonic()
            with (home / "baseline.log").open("ab") as log:
                done = account.run(words, cwd=home, search_path=STANDARD_PATH, output=log)
            if done.returncode:
                raise RuntimeError((home / "baseline.log").read_text()[-2000:])
            return time.monotonic() - started

        made = timed(binaries / "initdb", "-A", "trust", "-U", "postgres", "-D", data)
        options = f"-c listen_addresses= -c unix_socket_directories={home}"
        control = (binaries / "pg_ctl", "-s", "-w", "-D", data, "-l", home / "pg.log")
        started = timed(*control, "-o", options, "start")
        timed(*control, "-m", "immediate", "stop")
    return {"initdb": made, "pg_ctl start": started, "imports": _import_s(LIBRARIES)}


def _fresh(floor: dict[str, float]) -> Iterator[Measured]:
    for part, seconds in floor.items():
        yield Measured(f"baseline: {part}", seconds, "s")
    whole = sum(floor.values())
    yield Measured("imports of the fleet", _import_s("import butlers.daemon.fleet"), "s")
    with new_home() as home, running_fleet(home) as fleet:
        answered = _first_answer(fleet)
        for name, event in MILESTONES.items():
            if (seen := last_seen(fleet, event)) is not None:
                yield Measured(f"fresh home: {name}", seen, "s", whole)
        yield Measured("fresh home: reports that it is up", fleet.up_s, "s", whole)
        yield Measured("fresh home: first message answered", answered, "s", whole)
        process = fleet.process
        yield Measured("Ctrl-C to the end", end(process), "s")


def _again() -> Iterator[Measured]:
    with new_home() as home:
        with running_fleet(home):
            pass
        with running_fleet(home) as fleet:
            answered = _first_answer(fleet)
            yield Measured("second start: reports that it is up", fleet.up_s, "s")
            yield Measured("second start: first message answered", answered, "s")


def last_seen(fleet: RunningFleet, event: str) -> float | None:
    """Return the seconds from the start to the last log line of this event, or None."""
    found = None
    for line in fleet.log.splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("event") == event:
            found = datetime.fromisoformat(entry["timestamp"]).timestamp() - fleet.started_at
    return found


def _first_answer(fleet: RunningFleet) -> float:
    reply = fleet.send(MESSAGE)
    if reply != "Logged: weight 80.4 kg.":
        raise RuntimeError(f"the fleet answered {reply!r}")
    return time.monotonic() - fleet.started


def _import_s(statement: str) -> float:
    """Return the median of five runs, with bytecode cached."""
    variables = environment(Path(), 0)
    taken = []
    for _ in range(6):
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", statement], check=True, env=variables)
        taken.append(time.monotonic() - started)
    return sorted(taken[1:])[2]


# -- `make up`


def _with_install() -> Iterator[Measured]:
    """Measure twice: with an empty and with a filled package cache."""
    home = Path(tempfile.mkdtemp(prefix="bi-"))
    try:
        for cache in ("empty", "warm"):
            with _clone() as clone:
                yield from _make_up(clone, home, cache)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _clone() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bc-"))
    try:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "butlers")], check=True)
        yield folder / "butlers"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_up(clone: Path, home: Path, cache: str) -> Iterator[Measured]:
    butlers_home = home / ".butlers"
    shutil.rmtree(butlers_home, ignore_errors=True)
    variables = environment(butlers_home, free_offset()) | {"HOME": str(home)}
    del variables["PYTHONPATH"]
    output = home / "make.out"
    with output.open("wb") as out, (home / "make.err").open("wb") as errors:
        started_at, started = time.time(), time.monotonic()
        process = subprocess.Popen(
            ["make", "up"],
            cwd=clone,
            env=variables,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
    try:
        wait_for_line(process, output, READY, INSTALL_PATIENCE_S)
        send = [str(clone / ".venv/bin/butlers"), "send", MESSAGE, "--wait"]
        subprocess.run(send, env=variables, check=True, capture_output=True)
        whole = time.monotonic() - started
        installed = os.stat(clone / ".venv/.installed").st_mtime - started_at
        yield Measured(f"{cache} package cache: install", installed, "s")
        yield Measured(
            f"{cache} package cache: our own start to the answer", whole - installed, "s"
        )
        yield Measured(f"{cache} package cache: `make up` to the answer", whole, "s")
    finally:
        _interrupt(process)


def _interrupt(make: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to the process group, as Ctrl-C in a terminal does; make does not forward it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(make.pid, signal.SIGINT)
    make.wait(INSTALL_PATIENCE_S)
