"""Runs an installed program to its end: a bare environment, a home of its own, telemetry off."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "NO_UPDATE_NOTIFIER": "1",
}


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a program."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Programs:
    folder: Path
    home: Path

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "LANG": "C.UTF-8",
            **QUIET,
            **extra,
        }

    async def run(self, program: str, *arguments: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            self.folder / program,
            *arguments,
            env=self.environment(),
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return Ended(process.returncode, output.decode(), errors.decode())
