"""Slots of the whole fleet: no more at once than there are, and free again when a holder is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from butlers.sessions.concurrency import FleetSlots, slots_for_memory

MB = 2**20

HOLDER = """
import asyncio, sys
from pathlib import Path
from butlers.sessions.concurrency import FleetSlots

async def hold():
    async with FleetSlots(Path(sys.argv[1]), 1).taken():
        print("held", flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold())
"""


async def test_slots_limit_concurrent_holders(tmp_path: Path) -> None:
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


async def test_slots_are_shared_between_processes_and_freed_by_death(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("machine_mb", "container", "slots"),
    [
        (16_384, None, 27),  # half of it, 300 MB each
        (16_384, "max\n", 27),  # a container without a limit
        (16_384, f"{3_000 * MB}\n", 5),
        (16_384, f"{64_000 * MB}\n", 27),  # no container has more than its machine
        (1_200, None, 2),
        (1_199, None, 1),
        (16_384, f"{100 * MB}\n", 1),  # there is always one
        (256, None, 1),
    ],
)
def test_slots_use_half_of_the_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine_mb: int,
    container: str | None,
    slots: int,
) -> None:
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": machine_mb * MB // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    limit = tmp_path / "memory.max"
    if container is not None:
        limit.write_text(container)
    assert slots_for_memory(limit) == slots
