"""A message from the console to its reply, compared with as many bare calls as it has hops."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from uuid import UUID

import asyncpg

from benchmarks.helpers import RunningFleet, new_home, running_fleet
from benchmarks.report import Measured, percentile, report
from butlers.channels.console.connector import ConsoleConnector
from butlers.cli.fleet import owner_client
from butlers.config.settings import Settings
from butlers.db.embedded import EmbeddedPostgres

# ingest, route.execute, measurement_log, notify, deliver twice, console_receive
HOPS = 7
WARM_UP = 10
IN_FLIGHT = (1, 8, 32)
MAX_RATIO = 8  # of a message to one call
MESSAGE = "weight 80.4 kg"

# Time from receipt until each hop was recorded; all clocks are the same machine's.
PROFILE = """
SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY routed.finished_at - m.received_at)),
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY route.created_at - m.received_at)),
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY s.started_at - m.received_at)),
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY j.called_at - m.received_at)),
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY d.accepted_at - m.received_at)),
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY b.posted_at - m.received_at))
FROM switchboard.message_inbox m
JOIN switchboard.queue_items routed ON routed.queue = 'inbox' AND routed.key = m.request_id::text
JOIN health.queue_items route ON route.queue = 'routes' AND route.key = m.request_id::text
JOIN health.sessions s ON s.request_id = m.request_id
JOIN health.call_journal j ON j.request_id = m.request_id AND j.tool = 'notify'
JOIN messenger.deliveries d ON d.request_id = m.request_id
JOIN messenger.console_mailbox b ON b.request_id = m.request_id
WHERE m.request_id = ANY($1::uuid[])
"""
PROFILE_NAMES = (
    "switchboard: inbox item done",
    "health: route accepted",
    "health: session started",
    "health: notify called",
    "messenger: delivery accepted",
    "messenger: in the mailbox",
)


def run(options: argparse.Namespace) -> None:
    with new_home() as home, running_fleet(home) as fleet:
        lines = asyncio.run(_measure(fleet, options.messages))
    note = f"{options.messages} messages, one fleet; baseline: {HOPS} `status` calls in a row"
    report("message", lines, note)


async def _measure(fleet: RunningFleet, messages: int) -> list[Measured]:
    settings = Settings.from_environ(fleet.environment)
    async with (
        owner_client(settings, "switchboard") as switchboard,
        owner_client(settings, "messenger") as messenger,
        owner_client(settings, "health") as health,
    ):
        console = ConsoleConnector(switchboard, messenger)
        for _ in range(WARM_UP):
            await _round_trip(console)
            await health.call("status")
        took, bare, ids, used = [], [], [], 0.0
        for _ in range(messages):  # alternate, so that machine load affects both equally
            before = _cpu_s(fleet)
            started = time.perf_counter()
            ids.append(await _round_trip(console))
            took.append((time.perf_counter() - started) * 1000)
            used += _cpu_s(fleet) - before
            started = time.perf_counter()
            for _ in range(HOPS):
                await health.call("status")
            bare.append((time.perf_counter() - started) * 1000)
        bursts = {at_once: await _burst(console, messages, at_once) for at_once in IN_FLIGHT}
    lines = [
        Measured(
            f"message to reply, p{percent}",
            percentile(took, percent),
            "ms",
            percentile(bare, percent),
        )
        for percent in (50, 90, 99)
    ]
    one_call = percentile(bare, 50) / HOPS
    lines.append(Measured("message, p50, to one call", lines[0].value, "ms", one_call, MAX_RATIO))
    lines.append(Measured("CPU of the fleet per message", used * 1000 / messages, "ms"))
    for at_once, (rate, latency) in bursts.items():
        alone, alone_ms = bursts[IN_FLIGHT[0]]
        lines.append(Measured(f"messages a second, {at_once} in flight", rate, "/s", alone))
        lines.append(Measured(f"latency p50, {at_once} in flight", latency, "ms", alone_ms))
    return lines + await _profile(fleet, ids)


async def _round_trip(console: ConsoleConnector) -> UUID:
    request_id = await console.send(MESSAGE)
    replies = await console.receive(request_id, 30)
    if [reply.message for reply in replies] != ["Logged: weight 80.4 kg."]:
        raise RuntimeError(f"unexpected: {replies}")
    await console.shown(replies)
    return request_id


async def _burst(console: ConsoleConnector, messages: int, at_once: int) -> tuple[float, float]:
    """Return messages a second, and the median latency in milliseconds."""
    turn = asyncio.Semaphore(at_once)
    took: list[float] = []

    async def one() -> None:
        async with turn:
            began = time.perf_counter()
            await _round_trip(console)
            took.append((time.perf_counter() - began) * 1000)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(messages)))
    return messages / (time.perf_counter() - started), percentile(took, 50)


def _cpu_s(fleet: RunningFleet) -> float:
    """Return the CPU time that the fleet's process has used so far."""
    fields = Path(f"/proc/{fleet.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _profile(fleet: RunningFleet, ids: list[UUID]) -> list[Measured]:
    connection = await asyncpg.connect(EmbeddedPostgres(fleet.home).dsn("butlers"))
    try:
        row = await connection.fetchrow(PROFILE, ids)
    finally:
        await connection.close()
    return [
        Measured(f"on record after, p50: {name}", float(value) * 1000, "ms")
        for name, value in zip(PROFILE_NAMES, row, strict=True)
    ]
