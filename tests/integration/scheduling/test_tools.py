"""Schedule tools, called by the owner and by sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError
from butlers.domain.message import RequestContext
from butlers.domain.session import SessionRequest
from butlers.scheduling.scheduler import Scheduler
from butlers.wire.client import McpClient
from integration.scheduling.conftest import ScheduledButler

MEGABYTE = 1_000_001
GOOD = {"name": "good", "cron": "0 9 * * *", "prompt": "ping"}


async def in_session(
    scheduled: ScheduledButler, tool: str, request: RequestContext | None, **arguments: Any
) -> Any:
    request_id = request.request_id if request else uuid7()
    asked = SessionRequest(uuid7(), "test", "test", request=request, request_id=request_id)
    with scheduled.butler.guard.admit(asked) as token:
        async with McpClient("tester", scheduled.butler.url, lambda: token) as client:
            return await client.call(tool, arguments)


def from_phone() -> RequestContext:
    return RequestContext(
        request_id=uuid7(),
        received_at=datetime.now(UTC),
        source_channel="console",
        source_endpoint_identity="console:phone",
        source_sender_identity="owner",
        source_thread_identity="thread-7",
        sender_roles=("owner",),
    )


async def test_create_list_update_delete(running: ScheduledButler) -> None:
    made = await running.call("schedule_create", **GOOD, missed="once", missed_within_s=600)
    assert made["next_run_at"] == "2026-05-13T07:00:00+00:00"
    assert made["next_run_local"] == "2026-05-13 09:00"
    (listed,) = (await running.call("schedule_list"))["schedules"]
    assert (listed["id"], listed["source"], listed["missed"]) == (made["id"], "db", "once")
    assert listed["created_by"] == "owner:owner"

    changed = await running.call("schedule_update", id=made["id"], cron="30 10 * * *")
    assert changed["next_run_at"] == "2026-05-13T08:30:00+00:00"
    changed = await running.call("schedule_update", id=made["id"], timezone="America/New_York")
    assert changed["next_run_at"] == "2026-05-13T14:30:00+00:00"
    running.clock.move(minutes=1)
    changed = await running.call("schedule_update", id=made["id"], prompt="pong")
    assert changed["next_run_at"] == "2026-05-13T14:30:00+00:00"

    off = await running.call("schedule_update", id=made["id"], enabled=False)
    assert off["next_run_at"] is None
    running.clock.move(days=5)
    on = await running.call("schedule_update", id=made["id"], enabled=True)
    assert on["next_run_at"] == "2026-05-18T14:30:00+00:00"
    assert await running.runs("good") == []  # being off is not being missed

    assert (await running.call("schedule_delete", id=made["id"]))["status"] == "deleted"
    assert (await running.call("schedule_list"))["schedules"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ({**GOOD, "cron": "0 0 30 2 *"}, "invalid_arguments", "never fires"),
        ({**GOOD, "cron": "* * * * * *"}, "invalid_arguments", "seconds are not supported"),
        ({**GOOD, "cron": "*/1 * * * * *"}, "invalid_arguments", "seconds are not supported"),
        ({**GOOD, "cron": "soon"}, "invalid_arguments", "1 fields"),
        ({**GOOD, "cron": ""}, "invalid_arguments", "cron"),
        ({**GOOD, "timezone": "Mars/Olympus"}, "invalid_arguments", "not a time zone"),
        ({**GOOD, "timezone": "../../etc/passwd"}, "invalid_arguments", "not a time zone"),
        ({**GOOD, "name": "a\x07b"}, "invalid_arguments", "control characters"),
        ({**GOOD, "name": "a\nb"}, "invalid_arguments", "control characters"),
        ({**GOOD, "name": "a\x00b"}, "invalid_arguments", "control characters"),
        ({**GOOD, "name": "   "}, "invalid_arguments", "no name"),
        ({**GOOD, "name": "x" * 201}, "invalid_arguments", "200"),
        ({**GOOD, "prompt": "x" * MEGABYTE}, "message_too_large", "1,000,000"),
        ({**GOOD, "prompt": "  "}, "invalid_message", "empty"),
        ({**GOOD, "prompt": "a\x00b"}, "invalid_message", "NUL"),
        ({"name": "x", "cron": "@daily"}, "invalid_arguments", "either a prompt or a job_name"),
        ({**GOOD, "job_name": "j"}, "invalid_arguments", "either a prompt or a job_name"),
        ({"name": "x", "cron": "@daily", "job_name": "j"}, "invalid_arguments", "unknown job 'j'"),
        ({**GOOD, "check": "j"}, "invalid_arguments", "unknown job 'j'"),
        ({**GOOD, "missed": "maybe"}, "invalid_arguments", "missed"),
        ({**GOOD, "missed_within_s": -1}, "invalid_arguments", "missed_within_s"),
        ({**GOOD, "job_args": {"x": "y" * MEGABYTE}}, "message_too_large", "job_args"),
    ],
)  # fmt: skip
async def test_invalid_input_is_rejected_with_the_reason(
    running: ScheduledButler, arguments: dict[str, Any], code: str, reason: str
) -> None:
    with pytest.raises(ButlersError, match=reason) as caught:
        await running.call("schedule_create", **arguments)
    assert caught.value.code == code
    assert caught.value.hint
    assert await running.tasks() == {}


async def test_names_are_unique_and_ids_must_exist(running: ScheduledButler) -> None:
    await running.call("schedule_create", **GOOD)
    with pytest.raises(ButlersError, match="already"):
        await running.call("schedule_create", **GOOD)
    for tool in ("schedule_update", "schedule_delete"):
        with pytest.raises(ButlersError, match="unknown schedule") as caught:
            await running.call(tool, id=str(uuid7()))
        assert caught.value.code == "not_found"


async def test_declared_schedules_change_only_in_the_file(scheduled: ScheduledButler) -> None:
    scheduled.write('name = "ping"\ncron = "0 9 * * *"\nprompt = "ping"')
    await scheduled.start()
    task = str((await scheduled.tasks())["ping"]["id"])
    for tool, arguments in (("schedule_update", {"cron": "@daily"}), ("schedule_delete", {})):
        with pytest.raises(ButlersError, match=r"butler\.toml") as caught:
            await scheduled.call(tool, id=task, **arguments)
        assert caught.value.code == "not_allowed"
        assert caught.value.hint
    await scheduled.call("schedule_update", id=task, enabled=False)
    await scheduled.call("schedule_update", id=task, enabled=True)
    assert (await scheduled.tasks())["ping"]["next_run_at"] == datetime(2026, 5, 13, 7, tzinfo=UTC)


async def test_a_reminder_is_delivered_without_a_session(running: ScheduledButler) -> None:
    made = await in_session(running, "remind", from_phone(), message="Stretch!", in_minutes=10)
    assert made["next_run_at"] == "2026-05-13T06:10:30+00:00"
    assert (await running.butler.service(Scheduler).tick()).entries == ()
    running.clock.move(minutes=10)
    first, second = await running.call("tick"), await running.call("tick")
    assert len(first["ran"]) == 1
    assert second == {}
    (sent,) = await running.sent()
    assert sent["message"] == "Stretch!"
    assert (sent["channel"], sent["target"]) == ("console", "console:phone")
    assert sent["thread"] == "thread-7"
    assert await running.rows("SELECT FROM sessions") == []
    (run,) = await running.rows("SELECT * FROM schedule_runs")
    assert run["outcome"] == "ran"
    assert (await running.call("schedule_list"))["schedules"] == []
    (ended,) = (await running.call("schedule_list", include_ended=True))["schedules"]
    assert (ended["id"], ended["next_run_at"]) == (made["id"], None)


async def test_two_equal_reminders_of_one_request_are_two(running: ScheduledButler) -> None:
    request = from_phone()
    await in_session(running, "remind", request, message="Drink.", in_minutes=10)
    await in_session(running, "remind", request, message="Drink.", in_minutes=20)
    running.clock.move(minutes=10)
    await running.call("tick")
    running.clock.move(minutes=10)
    await running.call("tick")
    assert [sent["message"] for sent in await running.sent()] == ["Drink.", "Drink."]


async def test_a_repeated_session_makes_one_reminder(running: ScheduledButler) -> None:
    request = from_phone()
    arguments = {"message": "Stretch!", "in_minutes": 10}
    once = await in_session(running, "remind", request, **arguments)
    again = await in_session(running, "remind", request, **arguments)
    assert once == again
    assert len(await running.tasks()) == 1


async def test_a_late_reminder_is_delivered_and_says_so(scheduled: ScheduledButler) -> None:
    await scheduled.start()
    await scheduled.call("remind", message="Pills.", at="2026-05-13T09:30")
    await scheduled.stop()
    scheduled.clock.move(hours=8)
    await scheduled.start()

    (run,) = await scheduled.ended(next(iter(await scheduled.tasks())))
    assert (run["outcome"], run["detail"]) == ("ran", "6 h late")
    (sent,) = await scheduled.sent()
    assert sent["message"].startswith("Pills.\n(This was due at 2026-05-13 09:30")
    assert sent["target"] == "console:owner"


async def test_prompt_reminder_starts_a_session_and_delivers_its_reply(
    running: ScheduledButler,
) -> None:
    await in_session(running, "remind", from_phone(), prompt="ping", in_minutes=1)
    running.clock.move(minutes=1)
    await running.call("tick")
    (run,) = await running.ended(next(iter(await running.tasks())))
    assert run["outcome"] == "ran"
    (session,) = await running.rows("SELECT * FROM sessions")
    assert (session["prompt"], session["request_id"]) == ("ping", run["id"])
    (sent,) = await running.sent()
    assert (sent["message"], sent["target"]) == ("pong", "console:phone")


async def test_a_model_free_request_makes_a_reminder(running: ScheduledButler) -> None:
    answer = await running.call("trigger", prompt="remind me to stretch")
    assert answer["output"] == "I will."
    (task,) = (await running.tasks()).values()
    assert (task["message"], task["dispatch_mode"]) == ("stretch", "message")
    assert task["created_by"] == "session:tester"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-05-13T18:30", "2026-05-13T16:30:00+00:00"),
        ("2026-05-13T18:30:00Z", "2026-05-13T18:30:00+00:00"),
        ("2026-05-13T18:30:00-04:00", "2026-05-13T22:30:00+00:00"),
        ("2026-10-25T02:30", "2026-10-25T00:30:00+00:00"),  # twice: the first
        ("2027-03-28T02:30", "2027-03-28T01:00:00+00:00"),  # never: right after
    ],
)
async def test_reminder_time(running: ScheduledButler, at: str, expected: str) -> None:
    assert (await running.call("remind", message="x", at=at))["next_run_at"] == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"message": "x"}, "either in_minutes or at"),
        ({"message": "x", "in_minutes": 5, "at": "2027-01-01T00:00"}, "either in_minutes or at"),
        ({"in_minutes": 5}, "either a message or a prompt"),
        ({"message": "x", "prompt": "y", "in_minutes": 5}, "either a message or a prompt"),
        ({"message": "  ", "in_minutes": 5}, "empty"),
        ({"message": "a\x00b", "in_minutes": 5}, "NUL"),
        ({"message": "x" * MEGABYTE, "in_minutes": 5}, "1,000,000"),
        ({"message": "x", "in_minutes": 0}, "in_minutes"),
        ({"message": "x", "in_minutes": -3}, "in_minutes"),
        ({"message": "x", "in_minutes": 1e12}, "in_minutes"),
        ({"message": "x", "at": "2026-05-13T07:00"}, "is in the past"),
        ({"message": "x", "at": "9999-12-31T23:59:59"}, "ten years"),
        ({"message": "x", "at": "0001-01-01T00:00:00"}, "is in the past|out of range"),
        ({"message": "x", "at": "tomorrow"}, "at"),
    ],
)  # fmt: skip
async def test_invalid_reminder_is_rejected(
    running: ScheduledButler, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ButlersError, match=reason):
        await running.call("remind", **arguments)
    assert await running.tasks() == {}


async def test_a_session_may_not_tick(running: ScheduledButler) -> None:
    with pytest.raises(ButlersError) as caught:
        await in_session(running, "tick", None)
    assert caught.value.code == "not_allowed"


async def test_a_far_reminder_does_not_keep_the_loop_busy(looping: ScheduledButler) -> None:
    await looping.call("remind", message="x", in_minutes=60 * 24 * 300)
    async with looping.butler.database.transaction() as connection:
        due = await connection.fetchval("SELECT next_run_at FROM scheduled_tasks")
    assert due - looping.clock.now() == timedelta(days=300)
    assert await looping.butler.service(Scheduler)._tick() == 60
