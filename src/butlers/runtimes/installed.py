"""Which CLIs this machine has, where, and in which version."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}
# What the parsers and the contract tests were made with.
PINNED = {"claude-code": "2.1.325", "codex": "0.166.0", "gemini": "0.61.0"}
PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
}
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.-]*")
_VERSION_S = 20.0


@dataclass(frozen=True, slots=True)
class InstalledCli:
    runtime: str
    executable: Path

    async def version(self, environ: dict[str, str]) -> str | None:
        """What it says of itself; None when it does not start."""
        try:
            process = await asyncio.create_subprocess_exec(
                self.executable,
                "--version",
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return None
        try:
            async with asyncio.timeout(_VERSION_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return None
        found = _VERSION.search(said.decode("utf-8", "replace"))
        return found[0] if found else None


def find_cli(runtime: str, search_path: str) -> InstalledCli | None:
    found = shutil.which(PROGRAMS[runtime], path=search_path)
    if found is None:
        return None
    # Codex's npm program is a wrapper that leaves an orphan when it is killed: its binary lies beside it.
    return InstalledCli(runtime, _native(Path(found)) or Path(found))


def install_hint(runtime: str) -> str:
    return f"npm install -g {PACKAGES[runtime]}@{PINNED[runtime]}"


def _native(program: Path) -> Path | None:
    real = Path(os.path.realpath(program))
    if real.name != "codex.js":
        return None
    package = real.parent.parent
    for root in (package / "node_modules" / "@openai", package.parent):
        for binary in sorted(root.glob("codex-*/vendor/*/bin/codex")):
            return binary
    return None
