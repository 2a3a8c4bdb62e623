"""The [buffer] settings of the Switchboard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from butlers.domain.errors import QueueFull
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import BUSY, Lease
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.waiting import until

BUFFER = """
[buffer]
queue_capacity = 3
worker_count = 3
scanner_interval_s = 0.3
scanner_grace_s = 0.1
scanner_batch_size = 2
"""


@pytest.fixture
async def switchboard(make_butler: MakeButler) -> InProcessButler:
    tester = make_butler("switchboard")
    file = tester.directory / "butler.toml"
    file.write_text(file.read_text().replace("[buffer]\nworker_count = 4\n", BUFFER))
    await tester.start()
    for name in ("general", "health"):
        async with tester.peer(name) as peer:
            known = {"name": name, "url": "http://127.0.0.1:9/mcp", "description": name}
            await peer.call("register", {"registration": known})
    return tester


def message(number: int) -> dict[str, Any]:
    event = {"external_event_id": f"e-{number}", "external_thread_id": f"t-{number}"}
    return envelope(f"whose is {number}?", event=event)


@pytest.mark.scenario("S001-42")
async def test_every_buffer_setting_has_an_effect(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """THEN queue_capacity bounds what waits, worker_count how many are dispatched at once,
    scanner_interval_s and scanner_grace_s when work of a frozen worker is taken back, and
    scanner_batch_size how many are taken at once."""
    gate = asyncio.Event()

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        await gate.wait()
        return ""

    asked_for: list[int] = []
    claim = queue.claim

    async def watched(connection: Any, *, queue: str, holder: int, **more: Any) -> list[Lease]:
        if queue == "inbox":
            asked_for.append(more["limit"])
        return await claim(connection, queue, holder, **more)

    monkeypatch.setattr("butlers.queue.leased_queue.claim", watched)
    switchboard.butler.spawner.model = model = FakeRuntime(think)
    try:
        async with switchboard.owner() as owner:
            for number in range(3):
                await owner.call("ingest", message(number))
            await until("the workers to be busy", lambda: len(model.asked) == 3 or None)
            for number in range(3, 6):
                await owner.call("ingest", message(number))

            async def waiting() -> bool | None:
                rows = await switchboard.rows("SELECT 1 FROM queue_items WHERE error = $1", BUSY)
                return len(rows) == 3 or None

            await until("the others to wait", waiting)
            with pytest.raises(QueueFull, match="3 messages wait"):
                await owner.call("ingest", message(6))
        assert len(model.asked) == 3, "three workers, three at once"
        assert max(asked_for) == 2, "two in one batch, though three are free"

        # The lease of a frozen worker has expired. The scanner finds it after the grace time.
        frozen = await switchboard.rows(
            "UPDATE queue_items SET lease_until = now() - interval '1 minute'"
            " WHERE queue = 'inbox' AND state = 'leased' RETURNING key, fence"
        )
        assert len(frozen) == 3

        async def taken_back() -> bool | None:
            rows = await switchboard.rows(
                "SELECT 1 FROM queue_items WHERE queue = 'inbox' AND key = $1"
                " AND (state = 'ready' OR fence > $2)",
                frozen[0]["key"],
                frozen[0]["fence"],
            )
            return bool(rows) or None

        await until("the scanner to take it back", taken_back)
    finally:
        gate.set()
