"""Follow a message to its end: its replies as they come, and the steps on the way.

A message has ended when nothing that it caused is still queued: a first reply may be a reaction, and the
answer comes later. A message that is kept for longer than the command waits counts as ended too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.fleet import Record, known_butlers, list_records
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError
from butlers.domain.queues import SWITCHBOARD

POLL_S = 0.25
OPEN = ("ready", "leased")


@dataclass
class RequestWatch:
    """Watches one request. ``show`` is told each event once, in the order in which it was seen."""

    settings: Settings
    console: ConsoleConnector
    request_id: UUID
    show: Callable[[Record], None] = lambda _event: None
    replies: list[Reply] = field(default_factory=list)
    ended: bool = False
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    async def until_end(self, wait_s: float) -> None:
        """Collect replies until the request has ended or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        self._note({"event": "accepted", "request_id": str(self.request_id)})
        while True:
            left = deadline - loop.time()
            await self._receive(min(POLL_S, max(left, 0.0)))
            self.ended = await self._look(timedelta(seconds=max(left, 0.0)))
            if self.ended or left <= 0:
                await self._receive(0.0)  # a reply may have come between the two looks
                break
        if self.ended:
            self._note({"event": "ended"})

    async def _receive(self, wait_s: float) -> None:
        while fresh := await self.console.receive(self.request_id, wait_s):
            for reply in fresh:
                self.replies.append(reply)
                told = {"origin": reply.origin, "message": reply.message}
                self.show({"event": "reply", **told})
            await self.console.shown(fresh)
            wait_s = 0.0

    async def _look(self, left: timedelta) -> bool:
        """Show what is new, and return whether nothing of the request is left to do."""
        try:
            names = await known_butlers(self.settings)
            asked = {"request_id": str(self.request_id)}
            answers = await list_records(names, "request_path", asked, "hops", timeout_s=5)
        except ButlersError:
            return False
        hops = [hop for found in answers.found.values() for hop in found]
        for hop in sorted(hops, key=lambda hop: str(hop["at"])):
            if (event := _event(hop)) is not None:
                self._note(event)
        return not answers.failed and has_ended(hops, left)

    def _note(self, event: Record) -> None:
        key = tuple(sorted((name, str(value)) for name, value in event.items()))
        if key not in self._seen:
            self._seen.add(key)
            self.show(event)


def has_ended(hops: Sequence[Record], left: timedelta) -> bool:
    """Return whether nothing is under way, and every butler that was chosen has its part."""
    queued = [hop for hop in hops if hop["hop"] == "queued"]
    if not queued or any(_is_open(hop, left) for hop in queued):
        return False
    chosen = {hop["target"] for hop in hops if hop["hop"] == "decided" and hop["routed_at"]}
    chosen.discard(SWITCHBOARD)  # its own answers, such as help, have no route
    routed = {hop["butler"] for hop in queued if hop["queue"] == "routes"}
    sent = [hop for hop in hops if hop["hop"] == "delivery"]
    return chosen <= routed and not any(hop["state"] in ("accepted", "sending") for hop in sent)


def _is_open(hop: Record, left: timedelta) -> bool:
    if hop["state"] not in OPEN:
        return False
    due = datetime.fromisoformat(hop["run_after"])
    return hop["state"] == "leased" or due <= datetime.now(UTC) + left


def _event(hop: Record) -> Record | None:
    """Return the event that a hop is for the person who waits; None if it is of no interest."""
    butler = hop["butler"]
    match hop["hop"]:
        case "decided":
            return {"event": "routed", "to": hop["target"], "by": hop["rule"]}
        case "session" if hop["outcome"] is None:
            return {"event": "thinking", "butler": butler, "runtime": hop["runtime"]}
        case "session":
            ended = {"event": "thought", "butler": butler, "outcome": hop["outcome"]}
            return ended if hop["runtime"] != "reflex" else None
        case "call":
            return {"event": "called", "butler": butler, "tool": hop["tool"], "ok": hop["ok"]}
        case "queued" if hop["error"] and hop["state"] in (*OPEN, "dead"):
            state = "failed" if hop["state"] == "dead" else "waiting"
            return {"event": state, "butler": butler, "why": hop["error"]}
    return None


def progress_line(event: Record) -> str | None:
    """Return a line for the terminal; replies are printed apart."""
    match event["event"]:
        case "routed":
            return f"routed to {event['to']} ({event['by']})"
        case "thinking":
            return f"{event['butler']} is thinking ({event['runtime']})"
        case "called":
            return (
                f"{event['butler']} called {event['tool']}{'' if event['ok'] else ', which failed'}"
            )
        case "waiting" | "failed" as state:
            return f"{state} at {event['butler']}: {event['why']}"
    return None
