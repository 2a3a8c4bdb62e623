"""Slots of the whole fleet: no more at once than there are, and free again when a holder is killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from butlers.sessions.slots import FleetSlots, slots_for_memory

HOLDER = """
import asyncio, sys
from pathlib import Path
from butlers.sessions.slots import FleetSlots

async def hold():
    async with FleetSlots(Path(sys.argv[1]), 1).taken():
        print("held", flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold())
"""


async def test_never_more_at_once_than_there_are(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with FleetSlots(tmp_path, 2).taken():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1

    await asyncio.gather(*(work() for _ in range(9)))
    assert most == 2


async def test_another_process_counts_and_its_death_frees_the_slot(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        waiting = asyncio.create_task(take(tmp_path))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        holder.send_signal(signal.SIGKILL)
        assert await asyncio.wait_for(waiting, 60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            holder.kill()
        await holder.wait()


async def take(home: Path) -> int:
    async with FleetSlots(home, 1).taken() as slot:
        return slot


def test_there_is_always_one() -> None:
    assert slots_for_memory() >= 1
