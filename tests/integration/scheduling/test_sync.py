"""Sync of butler.toml's schedules at the start of a real butler."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from butlers.domain.errors import PhaseFailed
from integration.scheduling.conftest import ScheduledButler

MORNING = 'name = "morning-briefing"\ncron = "0 8 * * *"\nprompt = "Brief me."'
CLEANUP = 'name = "cleanup"\ncron = "*/30 * * * *"\ndispatch_mode = "job"\njob_name = "sweep"'
WEEKLY = {"name": "mine", "cron": "0 10 * * 1", "prompt": "ping"}


@pytest.mark.scenario("S002-38")
async def test_first_start_inserts_both(scheduled: ScheduledButler) -> None:
    scheduled.write(MORNING, CLEANUP)
    await scheduled.start()
    tasks = await scheduled.tasks()
    assert set(tasks) == {"morning-briefing", "cleanup"}
    assert {task["source"] for task in tasks.values()} == {"toml"}
    assert {task["enabled"] for task in tasks.values()} == {True}
    # It is 08:00:30 in Berlin: tomorrow at eight, and half past eight.
    assert tasks["morning-briefing"]["next_run_at"] == datetime(2026, 5, 14, 6, tzinfo=UTC)
    assert tasks["cleanup"]["next_run_at"] == datetime(2026, 5, 13, 6, 30, tzinfo=UTC)
    assert tasks["morning-briefing"]["timezone"] == "Europe/Berlin"
    assert tasks["cleanup"]["dispatch_mode"] == "job"
    assert (tasks["morning-briefing"]["exact"], tasks["cleanup"]["exact"]) == (True, False)


@pytest.mark.scenario("S002-39")
async def test_a_changed_entry_changes_its_task(scheduled: ScheduledButler) -> None:
    scheduled.write(MORNING)
    await scheduled.start()
    (before,) = (await scheduled.tasks()).values()
    scheduled.write('name = "morning-briefing"\ncron = "30 9 * * *"\nprompt = "Brief me well."')
    await scheduled.restart()
    (after,) = (await scheduled.tasks()).values()
    assert (after["cron"], after["prompt"]) == ("30 9 * * *", "Brief me well.")
    assert after["next_run_at"] == datetime(2026, 5, 13, 7, 30, tzinfo=UTC)
    assert (after["id"], after["source"]) == (before["id"], "toml")


@pytest.mark.scenario("S002-40")
async def test_sync_keeps_tasks_made_at_run_time(scheduled: ScheduledButler) -> None:
    scheduled.write(MORNING)
    await scheduled.start()
    await scheduled.call("schedule_create", **WEEKLY)
    before = (await scheduled.tasks())["mine"]
    assert before["source"] == "db"
    scheduled.write(CLEANUP)
    await scheduled.restart()
    assert (await scheduled.tasks())["mine"] == before


@pytest.mark.scenario("S002-41")
async def test_no_schedule_in_the_file(scheduled: ScheduledButler) -> None:
    await scheduled.start()
    assert await scheduled.tasks() == {}
    await scheduled.call("schedule_create", **WEEKLY)
    before = await scheduled.tasks()
    await scheduled.restart()
    assert await scheduled.tasks() == before
    assert {task["source"] for task in before.values()} == {"db"}


async def test_removed_schedule_is_disabled_until_restored(scheduled: ScheduledButler) -> None:
    scheduled.write(MORNING, CLEANUP)
    await scheduled.start()
    scheduled.write(CLEANUP)
    await scheduled.restart()
    gone = (await scheduled.tasks())["morning-briefing"]
    assert (gone["enabled"], gone["disabled_by"], gone["next_run_at"]) == (False, "file", None)
    scheduled.clock.move(days=3)
    scheduled.write(MORNING, CLEANUP)
    await scheduled.restart()
    back = (await scheduled.tasks())["morning-briefing"]
    assert (back["id"], back["enabled"], back["disabled_by"]) == (gone["id"], True, None)
    assert back["next_run_at"] == datetime(2026, 5, 17, 6, tzinfo=UTC)


async def test_schedule_disabled_by_the_owner_stays_disabled(scheduled: ScheduledButler) -> None:
    scheduled.write(MORNING)
    await scheduled.start()
    (task,) = (await scheduled.tasks()).values()
    await scheduled.call("schedule_update", id=str(task["id"]), enabled=False)
    await scheduled.restart()
    (after,) = (await scheduled.tasks()).values()
    assert (after["enabled"], after["disabled_by"], after["next_run_at"]) == (False, "owner", None)
    answer = await scheduled.call("schedule_update", id=str(task["id"]), enabled=True)
    assert answer["next_run_at"] == "2026-05-14T06:00:00+00:00"


async def test_an_unchanged_entry_keeps_its_due_time(scheduled: ScheduledButler) -> None:
    """Otherwise a restart would lose due times that passed while the butler was down."""
    scheduled.write(MORNING)
    await scheduled.start()
    await scheduled.stop()
    scheduled.clock.move(days=2, hours=3)
    await scheduled.start()
    runs = await scheduled.ended("morning-briefing", 2)
    assert [run["outcome"] for run in runs] == ["missed", "missed"]


async def test_name_of_a_run_time_task_is_rejected(scheduled: ScheduledButler) -> None:
    await scheduled.start()
    made = await scheduled.call("schedule_create", **WEEKLY)
    await scheduled.stop()
    scheduled.write(MORNING, 'name = "mine"\ncron = "@daily"\nprompt = "ping"')
    with pytest.raises(
        PhaseFailed, match=r"butler\.toml:\d+: butler\.schedule\[1\]\.name"
    ) as caught:
        await scheduled.start()
    assert made["id"] in str(caught.value)
    assert "'mine'" in str(caught.value)
    assert caught.value.hint
    assert caught.value.phase == "sync schedules"
    scheduled.write()
    await scheduled.start()
    assert set(await scheduled.tasks()) == {"mine"}  # the failed start left nothing behind


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ('name = "x"\ncron = "0 0 30 2 *"\nprompt = "p"', r":10: .*cron: .*never fires"),
        ('name = "x"\ncron = "* * * * * *"\nprompt = "p"', r":10: .*seconds are not supported"),
        ('name = "x"\ncron = "nine"\nprompt = "p"', r":10: .*1 fields"),
        ('name = "a\\u0007b"\ncron = "@daily"\nprompt = "p"', r":9: .*control characters"),
        ('name = "x"\ncron = "@daily"\nprompt = "a\\u0000b"', r":11: .*NUL"),
        (
            'name = "x"\ncron = "@daily"\ndispatch_mode = "job"\njob_name = "j"\njob_args = {a = nan}',
            r":13: .*nan",
        ),
    ],
)
async def test_invalid_entry_is_rejected_with_file_key_and_line(
    scheduled: ScheduledButler, schedule: str, reason: str
) -> None:
    scheduled.write(schedule)
    with pytest.raises(PhaseFailed, match=rf"butler\.toml{reason}") as caught:
        await scheduled.start()
    assert caught.value.hint
