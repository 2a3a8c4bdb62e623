"""Other assistants in their default setup, to compare the size of their requests."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rivals.package import Package
from support.fake_model import FakeModel, Say, Turn

MODEL, KEY = "claude-opus-4-5", "sk-ant-none"
PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Assistant:
    """Command for one message, and the config file that names the model server ({url})."""

    package: Package
    command: tuple[str, ...]
    config_path: str
    config: str

    def __str__(self) -> str:
        return str(self.package)

    async def first_request(self, model: FakeModel) -> Turn | None:
        """Return its first request for "Hello", or None if it cannot be installed."""
        if (python := self.package.python()) is None:
            return None
        model.script = [Say("Hi.")]
        before = len(model.turns)
        with tempfile.TemporaryDirectory(prefix="bb-", ignore_cleanup_errors=True) as home:
            self._write_config(home, model.url)
            process = await asyncio.create_subprocess_exec(
                str(python.with_name(self.command[0])),
                *self.command[1:],
                env={
                    "HOME": home,
                    "PATH": os.environ["PATH"],
                    "ANTHROPIC_API_KEY": KEY,
                    "ANTHROPIC_BASE_URL": model.url,
                },
                cwd=home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if len(model.turns) == before:
            raise RuntimeError(f"{self} sent no request to the model:\n{output.decode()[-2000:]}")
        return model.turns[before]

    def _write_config(self, home: str, url: str) -> None:
        config = Path(home, self.config_path)
        config.parent.mkdir()
        config.write_text(self.config.replace("{url}", url))


ASSISTANTS = (
    Assistant(
        Package("nanobot-ai", "0.3.5"),
        ("nanobot", "agent", "--message", "Hello", "--classic"),
        ".nanobot/config.json",
        json.dumps(
            {
                "agents": {"defaults": {"model": f"anthropic/{MODEL}", "provider": "anthropic"}},
                "providers": {"anthropic": {"apiKey": KEY, "apiBase": "{url}"}},
            }
        ),
    ),
    Assistant(
        Package("hermes-agent", "0.19.0"),
        ("hermes", "-z", "Hello", "--model", MODEL, "--provider", "anthropic"),
        ".hermes/config.yaml",
        f"model:\n  default: {MODEL}\n  provider: anthropic\n  base_url: {{url}}\n",
    ),
)
