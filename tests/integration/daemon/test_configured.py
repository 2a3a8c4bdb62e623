"""Values of butler.toml that reach the Switchboard and the queue: a value that is ignored fails here."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from butlers.domain.message import RouteDecision, RouteRequest
from butlers.domain.queues import ROUTES
from butlers.queue import leased_queue as queue
from butlers.wire.client import McpClient
from butlers.wire.codec import encode
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.waiting import until

REGISTRY = "SELECT * FROM butler_registry WHERE name = 'tester'"


def extra(switchboard: InProcessButler, *, advertise: bool) -> str:
    return f"""
[butler.switchboard]
url = "{switchboard.butler.url}"
advertise = {str(advertise).lower()}
liveness_ttl_s = 77
route_contract_min = 1
route_contract_max = 4
[buffer]
scanner_interval_s = 7
scanner_grace_s = 3
"""


async def test_registration_has_the_configured_time_to_live_and_contracts(
    switchboard: InProcessButler, make_butler: MakeButler
) -> None:
    tester = make_butler(extra=extra(switchboard, advertise=True))
    await tester.start()

    async def registered() -> list[dict[str, Any]]:
        return await switchboard.rows(REGISTRY)

    (row,) = await until("the registration", registered)
    assert (row["liveness_ttl_s"], row["contract_min"], row["contract_max"]) == (77, 1, 4)
    listener = tester.butler.listener
    assert (listener._recover_every_s, listener._grace) == (7, timedelta(seconds=3))


async def test_butler_that_does_not_advertise_is_not_registered(
    switchboard: InProcessButler, make_butler: MakeButler
) -> None:
    tester = make_butler(extra=extra(switchboard, advertise=False))
    butler = await tester.start()
    assert butler.registrar is None
    assert await switchboard.rows(REGISTRY) == []
    assert (await tester.status())["switchboard"] is None


async def test_uptime_begins_when_the_butler_is_ready(make_butler: MakeButler) -> None:
    tester = make_butler()
    butler = tester.make()
    assert butler.uptime_s == 0
    await butler.start()
    first = butler.uptime_s
    assert 0 <= first < 5, "the start itself does not count"
    await until("time to pass", lambda: butler.uptime_s > first or None)


@pytest.mark.parametrize(("most", "place"), [(2, 2), (4, 4)])
async def test_less_urgent_message_runs_after_the_configured_number_of_urgent_ones(
    make_butler: MakeButler, most: int, place: int
) -> None:
    """max_consecutive_same_tier. The first message, which opens the gate, begins no streak."""
    tester = make_butler(extra=f"[buffer]\nmax_consecutive_same_tier = {most}\n")
    await tester.start()
    gate = asyncio.Event()

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        await gate.wait()
        return "thought"

    async def add(text: str, priority: int) -> None:
        route = RouteRequest(
            request_context(text), "tester", text, RouteDecision("tester", "fallback", "test")
        )
        async with tester.butler.database.transaction() as connection:
            await queue.enqueue(
                connection, ROUTES, text, encode(route), priority=priority, lane=text
            )

    tester.butler.spawner.model = model = FakeRuntime(think)
    try:
        await add("opener", 5)
        await until("the worker to be busy", lambda: model.asked or None)
        for number in range(6):
            await add(f"urgent-{number}", 0)
        await add("patient", 3)
    finally:
        gate.set()
    await until("all to be asked", lambda: len(model.asked) == 8 or None)
    after = [call.prompt for call in model.asked[1:]]
    assert [n for n, prompt in enumerate(after) if "patient" in prompt] == [place]
