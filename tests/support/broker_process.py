"""A key broker in a process of its own, which a test may kill.

Run as a program, this module reads the providers of sessions, by their names, as one line of JSON, prints its
address and a token for each session, and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from butlers.broker.grants import TokenTerms
from butlers.broker.server import Broker, serving
from butlers.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
LIFETIME_S = 600.0


@dataclass(frozen=True)
class BrokerProcess:
    process: asyncio.subprocess.Process
    url: str
    tokens: Mapping[str, str]  # by session

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


@dataclass(frozen=True)
class ModelKeys:
    """A credential store that leads to one model server."""

    url: str

    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return self.url if name.endswith("_BASE_URL") else "real-key"


@asynccontextmanager
async def broker_process(
    home: Path, model: str, providers: Mapping[str, str]
) -> AsyncIterator[BrokerProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.broker_process", str(home), model),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(dict(providers)).encode() + b"\n")
        started = json.loads(await process.stdout.readline())
        yield BrokerProcess(process, started["url"], started["tokens"])
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _serve(home: Path, keys: ModelKeys, providers: Mapping[str, str]) -> None:
    async with serving(Broker.of(Settings(home))) as broker:
        expires = broker.clock.monotonic() + LIFETIME_S
        tokens = {
            name: broker.grants.mint(TokenTerms(name, "health", provider, keys, expires))
            for name, provider in providers.items()
        }
        print(json.dumps({"url": broker.url, "tokens": tokens}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), ModelKeys(sys.argv[2]), json.loads(sys.stdin.readline())))
