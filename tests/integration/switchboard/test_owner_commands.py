"""The owner's commands /stop, /pause, /resume and /status, without a model."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from butlers.daemon.registration import apply_pause_answer
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import NotAllowed
from butlers.domain.message import InboxItem, PolicyTier, RouteDecision, RouteRequest
from butlers.domain.queues import COMMANDS
from butlers.domain.registration import Registration
from butlers.queue import leased_queue as queue
from butlers.queue import worker
from butlers.queue.pause import Pause, apply_order
from butlers.switchboard.registry import register
from butlers.tools.context import CallContext
from butlers.wire.codec import encode
from support.fake_runtime import FakeRuntime, for_ever
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope, request_context
from support.waiting import until


@pytest.fixture
async def tester(make_butler: MakeButler) -> InProcessButler:
    made = make_butler()
    await made.start()
    return made


@pytest.fixture
async def switchboard(switchboard: InProcessButler, tester: InProcessButler) -> InProcessButler:
    """A Switchboard with one running butler and one that is gone."""
    for name, url in (("tester", tester.butler.url), ("gone", "http://127.0.0.1:9/mcp")):
        known = {"name": name, "url": url, "description": name}
        async with switchboard.peer(name) as peer:
            await peer.call("register", {"registration": known})
    return switchboard


async def say(tester: InProcessButler, text: str, **changes: Any) -> str:
    """Send a command and return the reply from the outgoing queue, because there is no Messenger."""
    async with tester.owner() as owner:
        accepted = await owner.call("ingest", envelope(text, **changes))
    assert accepted["status"] == "accepted"

    async def answer() -> list[str]:
        rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
        said = [json.loads(row["payload"]) for row in rows]
        return [one["message"] for one in said if one["request_id"] == accepted["request_id"]]

    (message,) = await until(f"an answer to {text}", answer)
    return message


async def route(tester: InProcessButler, text: str) -> None:
    token = tester.key.mint(CallerKind.PEER, "switchboard", "tester")
    request = request_context(text)
    given = RouteRequest(request, "tester", text, RouteDecision("tester", "test", "test"))
    async with tester.client(token) as switchboard:
        await switchboard.call("route.execute", {"route": encode(given)})


async def outcomes(tester: InProcessButler) -> list[str]:
    rows = await tester.rows("SELECT outcome FROM sessions WHERE outcome IS NOT NULL")
    return [row["outcome"] for row in rows]


async def test_stop_ends_all_sessions_and_names_silent_butlers(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    tester.butler.spawner.model = FakeRuntime(for_ever)
    switchboard.butler.spawner.model = FakeRuntime(for_ever)
    await route(tester, "think about it")
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("whose is this?"))

    async def both_run() -> bool:
        return bool(tester.butler.guard.count and switchboard.butler.guard.count)

    await until("two sessions to run", both_run)
    answer = await say(switchboard, "/stop")
    assert answer == "Stopped 2. No answer from: gone."
    await until("they are over", lambda: not tester.butler.guard.count or None)
    assert await outcomes(tester) == ["cancelled"]
    assert await say(switchboard, "/STOP") == "Nothing was running. No answer from: gone."


async def test_messages_during_a_pause_are_handled_after_it(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    assert (await say(switchboard, "/pause")).startswith("Paused until you say /resume.")
    await route(tester, "keep this")

    async def postponed() -> list[dict[str, Any]]:
        return await tester.rows(
            "SELECT error, attempts, state FROM queue_items WHERE queue = 'routes'"
            " AND error IS NOT NULL AND state = 'ready'"
        )

    (item,) = await until("the route to be postponed", postponed)
    assert item == {"error": "the owner has paused the fleet", "attempts": 0, "state": "ready"}
    assert await tester.count("sessions") == 0
    status = await say(switchboard, "/status")
    assert status.splitlines()[0] == "Paused."
    assert (await say(switchboard, "/resume")).startswith("Resumed.")
    await until("it is done", lambda: _done(tester))
    assert await tester.rows("SELECT text FROM entries") == [{"text": "this"}]
    assert (await say(switchboard, "/resume")).startswith("It was not paused.")


async def test_pause_with_a_duration_ends_by_itself(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    answer = await say(switchboard, "/pause 2 hours")
    assert answer.startswith("Paused until ")
    (row,) = await tester.rows("SELECT until - since AS length FROM pause")
    assert 7_190 < row["length"].total_seconds() < 7_210
    assert "the duration" in await say(switchboard, "/pause a bit")


async def test_shortened_pause_releases_messages_at_its_new_end(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    await say(switchboard, "/pause")
    await route(tester, "keep this")
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope("whose is this?"))

    async def kept_until(tester: InProcessButler, name: str) -> datetime | None:
        rows = await tester.rows(
            "SELECT run_after FROM queue_items WHERE queue = $1 AND state = 'ready'"
            " AND error = 'the owner has paused the fleet'",
            name,
        )
        return rows[0]["run_after"] if rows else None

    places = ((tester, "routes"), (switchboard, "inbox"))
    for tester, name in places:
        found = await until(f"{name} to be kept", partial(kept_until, tester, name))
        assert found > datetime.now(UTC) + timedelta(hours=23)
    await say(switchboard, "/pause 10 minutes")
    for tester, name in places:
        (pause,) = await tester.rows("SELECT until FROM pause")

        async def kept_so(
            tester: InProcessButler = tester, name: str = name, end: Any = pause["until"]
        ) -> bool:
            return await kept_until(tester, name) == end

        await until(f"{name} to be kept until the new end", kept_so)


async def test_butler_that_was_away_learns_of_the_pause_when_it_registers(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    await say(switchboard, "/pause")
    async with switchboard.peer("late") as late:
        known = {"name": "late", "url": "http://127.0.0.1:9/mcp", "description": "late"}
        answer = await late.call("register", {"registration": known})
    assert answer["pause"]["until"] is None
    await say(switchboard, "/resume")
    async with switchboard.peer("late") as late:
        assert (await late.call("register", {"registration": known}))["pause"] is None


async def test_outdated_answer_does_not_end_a_pause(
    tester: InProcessButler,
) -> None:
    butler = tester.butler
    asked_at = butler.pause_state.orders
    async with tester.peer("switchboard") as switchboard:
        await switchboard.call("control_pause")
    await apply_pause_answer(butler, None, asked_at)
    assert await tester.count("pause") == 1
    await apply_pause_answer(butler, None, butler.pause_state.orders)
    assert await tester.count("pause") == 0


async def test_answer_waits_for_a_concurrent_pause(tester: InProcessButler) -> None:
    butler = tester.butler
    asked_at = butler.pause_state.orders
    async with butler.database.transaction() as connection:
        await apply_order(connection, Pause(datetime.now(UTC)), butler.pause_state)
        answered = asyncio.create_task(apply_pause_answer(butler, None, asked_at))
        await until("it to wait", lambda: _waiting(tester))
    await answered
    assert await tester.count("pause") == 1


async def test_butler_that_registers_while_a_pause_begins_is_asked_too(
    switchboard: InProcessButler,
) -> None:
    services = switchboard.butler.services
    late = Registration("late", "http://127.0.0.1:9/mcp", "late")
    async with switchboard.butler.database.transaction() as connection:
        caller = Caller(CallerKind.PEER, "late")
        answer = await register(CallContext(services, caller, None, None, connection), late)
        assert answer["pause"] is None
        # The registration is not committed, and the butler was answered that there is no pause.
        pausing = asyncio.create_task(say(switchboard, "/pause"))
        await until("the pause to wait, or to be over", lambda: _waiting(switchboard, pausing))
    assert "No answer from: gone, late." in await pausing


async def _waiting(tester: InProcessButler, task: asyncio.Task[Any] | None = None) -> bool:
    """Return whether a backend of this butler's database waits for a lock."""
    rows = await tester.rows(
        "SELECT FROM pg_locks JOIN pg_database ON oid = database"
        " WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
    )
    return bool(rows) or (task is not None and task.done())


async def test_status_lists_every_butler(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    lines = (await say(switchboard, "/status")).splitlines()
    assert [line.split(":")[0] for line in lines] == ["switchboard", "tester", "gone"]
    assert lines[1] == "tester: healthy"
    assert lines[2] == "gone: no answer"


async def test_command_is_handled_while_the_inbox_is_blocked(switchboard: InProcessButler) -> None:
    """All workers are busy and the lane of the conversation is blocked."""
    switchboard.butler.spawner.model = FakeRuntime(for_ever)
    async with switchboard.owner() as owner:
        for number in range(6):
            thread = {"external_event_id": str(number), "external_thread_id": str(number)}
            await owner.call("ingest", envelope("whose is this?", event=thread))
        await owner.call("ingest", envelope("and this?"))
    await until("the workers to be busy", lambda: switchboard.butler.guard.count >= 4 or None)
    assert (await say(switchboard, "/status")).startswith("switchboard: healthy")
    assert (await say(switchboard, "/stop")).startswith("Stopped")


async def test_command_is_recorded_with_its_message(switchboard: InProcessButler) -> None:
    async with switchboard.owner() as owner:
        request_id = (await owner.call("ingest", envelope("/status")))["request_id"]

        async def carried_out() -> dict[str, Any] | None:
            hops = (await owner.call("request_path", {"request_id": request_id}))["hops"]
            found = [hop for hop in hops if hop.get("queue") == "commands"]
            return found[0] if found and found[0]["state"] == "done" else None

        hop = await until("the command to be carried out", carried_out)
    assert (hop["command"], hop["attempts"]) == ("status", 1)


async def test_sender_of_a_failing_command_is_notified(
    switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "backoff", lambda _attempt: timedelta(0))
    request = request_context()
    broken = InboxItem(request, "this is no command", PolicyTier.INTERACTIVE)
    async with switchboard.butler.database.transaction() as connection:
        await queue.enqueue(connection, COMMANDS, str(request.request_id), encode(broken))

    async def notices() -> list[str]:
        rows = await switchboard.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
        said = [json.loads(row["payload"]) for row in rows]
        return [one["message"] for one in said if one["request_id"] == str(request.request_id)]

    (words,) = await until("the owner to be notified", notices)
    assert "Your message could not be handled" in words


@pytest.mark.parametrize("text", ["/stopped", "stop", "/stop it /pause"[:5] + "ping", "/unknown"])
async def test_unknown_slash_words_are_messages(switchboard: InProcessButler, text: str) -> None:
    async with switchboard.owner() as owner:
        await owner.call("ingest", envelope(text))
    rows = await switchboard.rows(
        "SELECT queue FROM queue_items WHERE queue IN ('inbox', 'commands')"
    )
    assert rows == [{"queue": "inbox"}]


async def test_command_of_another_sender_is_an_ordinary_message(
    switchboard: InProcessButler, tester: InProcessButler
) -> None:
    async with switchboard.owner() as owner:
        await owner.call("contacts_allow", {"channel": "email", "identity": "anna@example.com"})
        source = {"channel": "email", "provider": "imap", "endpoint_identity": "me"}
        sender = {"identity": "anna@example.com"}
        await owner.call("ingest", envelope("/pause", source=source, sender=sender))
    rows = await switchboard.rows(
        "SELECT queue FROM queue_items WHERE queue IN ('inbox', 'commands')"
    )
    assert rows == [{"queue": "inbox"}]
    assert await tester.count("pause") == 0


async def test_only_the_switchboard_may_control_a_butler(tester: InProcessButler) -> None:
    async with tester.peer("health") as peer, tester.owner() as owner:
        for tool in ("control_stop", "control_pause", "control_resume", "control_retry"):
            with pytest.raises(NotAllowed, match="only the Switchboard"):
                await peer.call(tool)
            with pytest.raises(NotAllowed, match="may not call"):
                await owner.call(tool)


async def _done(tester: InProcessButler) -> bool | None:
    rows = await tester.rows("SELECT state FROM queue_items WHERE queue = 'routes'")
    await asyncio.sleep(0)
    return all(row["state"] == "done" for row in rows) or None
