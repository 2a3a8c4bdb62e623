"""The owner's commands /stop, /pause, /resume, /status, /retry, /yes, /no and /undo, without a model.

The Switchboard asks every butler at once. A butler that does not answer is named in the reply, and learns
of a pause when it registers again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from butlers.db.database import Connection
from butlers.domain.errors import InvalidArguments
from butlers.domain.message import Command, InboxItem, Word, parse_command
from butlers.domain.queues import INBOX, SWITCHBOARD
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_reply
from butlers.queue.pause import Pause, begin_pause, end_pause, read_pause
from butlers.queue.worker import FinishWith
from butlers.skills.reflexes.times import read_seconds
from butlers.switchboard import registry
from butlers.switchboard.approval_answers import ApprovalAnswers
from butlers.switchboard.asking import ButlerAnswers, ask_butlers
from butlers.tools.role import RoleParts
from butlers.wire.codec import decode


class OwnerCommands:
    def __init__(self, parts: RoleParts) -> None:
        self._database = parts.database
        self._peers = parts.peers
        self._clock = parts.clock
        self._zone = ZoneInfo(parts.config.timezone)
        self._spawner = parts.spawner
        self._own_status = parts.status
        self._answers = ApprovalAnswers(parts.database, parts.peers, parts.clock)

    async def carry_out(self, lease: Lease) -> Any:
        item = decode(InboxItem, lease.payload)
        command = parse_command(item.text)
        assert command is not None  # only commands are in this queue
        text = await self._run(command)

        async def write(connection: Connection) -> None:
            await queue_reply(connection, SWITCHBOARD, item.request, text)

        return FinishWith({"command": str(command.word)}, write)

    async def _run(self, command: Command) -> str:
        match command.word:
            case Word.STOP:
                return await self._stop()
            case Word.PAUSE:
                return await self._pause(command.rest)
            case Word.RESUME:
                return await self._resume()
            case Word.STATUS:
                return await self._status()
            case Word.RETRY:
                return await self._retry()
            case Word.YES | Word.NO:
                return await self._answers.decide(command.word is Word.YES, command.rest)
            case Word.UNDO:
                return await self._answers.undo(command.rest)

    async def _stop(self) -> str:
        own = len(self._spawner.stop_all())
        answers = await self._ask_all("control_stop", {})
        stopped = own + sum(answer["stopped"] for answer in answers.given.values())
        what = "Nothing was running." if not stopped else f"Stopped {stopped}."
        return answers.with_missing(what)

    async def _pause(self, rest: str) -> str:
        try:
            until = self._end_of_pause(rest)
        except InvalidArguments as error:
            return f"{error.message}. {error.hint}"
        async with self._database.transaction() as connection:
            pause = await begin_pause(connection, until)
        answers = await self._ask_all("control_pause", {"until": _iso(pause.until)})
        await self._make_inbox_due()  # items that wait for the end of an earlier pause
        when = f"until {self._local(until)}" if until else "until you say /resume"
        return answers.with_missing(f"Paused {when}. New messages are stored.")

    async def _resume(self) -> str:
        async with self._database.transaction() as connection:
            was_paused = await end_pause(connection)
        answers = await self._ask_all("control_resume", {})
        await self._make_inbox_due()
        return answers.with_missing("Resumed." if was_paused else "It was not paused.")

    async def _status(self) -> str:
        answers = await self._ask_all("status", {})
        async with self._database.transaction() as connection:
            pause = await read_pause(connection, self._clock.now())
        every = {SWITCHBOARD: await self._own_status(), **answers.given}
        lines = [self._paused_line(pause)] if pause else []
        lines += [_line(name, status) for name, status in sorted(every.items())]
        lines += [f"{name}: no answer" for name in sorted(answers.missing)]
        return "\n".join(lines)

    async def _retry(self) -> str:
        own = await self._make_inbox_due()
        answers = await self._ask_all("control_retry", {})
        items = own + sum(answer["due"] for answer in answers.given.values())
        what = f"Trying again: {items}." if items else "Nothing was waiting."
        return answers.with_missing(what)

    async def _make_inbox_due(self) -> int:
        async with self._database.transaction() as connection:
            return await queue.make_due(connection, INBOX)

    async def _ask_all(self, tool: str, arguments: dict[str, Any]) -> ButlerAnswers:
        async with self._database.transaction() as connection:
            known = await registry.list_registrations(connection)
        return await ask_butlers(self._peers, known, tool, arguments)

    def _end_of_pause(self, rest: str) -> datetime | None:
        if not rest:
            return None
        seconds = read_seconds(rest.removeprefix("for").strip())
        if not seconds:
            raise InvalidArguments(
                f"I do not understand the duration {rest[:80]!r}",
                hint="Say /pause, or /pause 2 hours.",
            )
        return self._clock.now() + timedelta(seconds=seconds)

    def _local(self, when: datetime) -> str:
        return f"{when.astimezone(self._zone):%d %B, %H:%M}"

    def _paused_line(self, pause: Pause) -> str:
        return f"Paused until {self._local(pause.until)}." if pause.until else "Paused."


def _iso(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


def _line(name: str, status: dict[str, Any]) -> str:
    queues: dict[str, dict[str, int]] = status.get("queues") or {}
    counts = {
        state: sum(depth.get(state, 0) for depth in queues.values())
        for state in ("ready", "leased", "dead")
    }
    questions = status.get("questions")
    parts = [f"{questions} for you to decide"] if questions else []
    parts += [
        f"{count} {word}"
        for word, count in zip(("waiting", "running", "dead"), counts.values(), strict=True)
        if count
    ]
    return f"{name}: {status['health']}" + (f" ({', '.join(parts)})" if parts else "")
