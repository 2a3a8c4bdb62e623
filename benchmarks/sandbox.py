"""Scripts and sealed sessions in the sandbox, compared with the same without it.

Both sides of a ratio are measured alternately, so that machine load affects both equally.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Measured, percentile, report
from benchmarks.sessions import _butler, _in_turn, _session
from butlers.runtimes import containment
from support.clis import CLIS, Cli
from support.scripts import Scripts

SCRIPTS = 40
HELLO_PY = "print('hello')\n"


def run(options: argparse.Namespace) -> None:
    lines = [asyncio.run(_script()), *(asyncio.run(_sealed(cli, options.sessions)) for cli in CLIS)]
    report(
        "sandbox", lines, f"{SCRIPTS} runs of a script, {options.sessions} sessions of each kind"
    )


async def _script() -> Measured:
    """Compare a trivial script of a registered skill with a plain subprocess of the same file."""
    with tempfile.TemporaryDirectory(prefix="bb-") as name:
        scripts = Scripts(Path(name))
        pack = scripts.pack({"scripts/hello.py": HELLO_PY})

        async def ours() -> None:
            answer = await scripts.run(pack, "hello")
            if answer.result != "hello":
                raise RuntimeError(f"unexpected answer: {answer}")

        async def bare() -> None:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-B", str(pack.folder / "scripts" / "hello.py")),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            if output != b"hello\n":
                raise RuntimeError(f"unexpected output: {output!r}")

        took, baseline = await _in_turn(SCRIPTS, ours, bare)
    return Measured(
        "a trivial script, run by skill_run (bare subprocess), p50",
        percentile(took, 50),
        "ms",
        percentile(baseline, 50),
        at_most=2,
    )


async def _sealed(cli: Cli, sessions: int) -> Measured:
    async with _butler(cli, warm=0) as (butler, model):

        async def without() -> None:
            with _no_sandbox():
                await _session(butler, model)

        walled, open_ = await _in_turn(sessions, lambda: _session(butler, model), without)
    title = f"{cli.name}, a sealed session in the sandbox (without it), p50"
    return Measured(title, percentile(walled, 50), "ms", percentile(open_, 50), at_most=1.1)


@contextmanager
def _no_sandbox() -> Iterator[None]:
    """Start CLIs as on a system that has no sandbox."""
    asked = containment.sandbox_problem
    containment.sandbox_problem = lambda: "switched off"  # type: ignore[assignment]
    try:
        yield
    finally:
        containment.sandbox_problem = asked
