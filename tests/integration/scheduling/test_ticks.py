"""Ticks and runs against a real database: each once, never lost, always recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from butlers.daemon.butler import Butler
from butlers.db.database import Database
from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.queues import SCHEDULES
from butlers.domain.schedule import run_id_of
from butlers.queue import leased_queue as queue
from butlers.scheduling import store as schedules
from butlers.scheduling.jobs import JobContext
from butlers.scheduling.runs import TaskRunner
from butlers.scheduling.scheduler import Scheduler
from integration.scheduling.conftest import ScheduledButler
from support.waiting import until

PING = 'name = "ping"\ncron = "0 9 * * *"\nprompt = "ping"'
SWEEPER = """
from butlers.sdk import JobContext, Module


async def sweep(job: JobContext) -> None:
    await job.connection.execute("INSERT INTO state VALUES ('swept', $1)", job.task)


class TesterModule(Module):
    name = "tester"
    jobs = (sweep,)
"""
NINE = datetime(2026, 5, 13, 7, tzinfo=UTC)  # in Berlin


def jobs_of(scheduled: ScheduledButler) -> dict[str, Any]:
    jobs = scheduled.butler.service(Scheduler).jobs
    assert isinstance(jobs, dict)
    return jobs


async def tick_at(scheduled: ScheduledButler, when: datetime) -> dict[str, Any]:
    scheduled.clock.at = when
    return (await scheduled.butler.service(Scheduler).tick()).as_dict()


async def test_a_prompt_runs_in_a_session(scheduled: ScheduledButler) -> None:
    scheduled.write(PING)
    await scheduled.start()
    assert await tick_at(scheduled, NINE - timedelta(seconds=1)) == {}
    assert await tick_at(scheduled, NINE) == {"queued": ["ping"]}
    (run,) = await scheduled.ended("ping")
    assert (run["outcome"], run["due_at"], run["detail"]) == ("ran", NINE, None)
    (session,) = await scheduled.rows("SELECT * FROM sessions")
    assert session["trigger_source"] == "schedule:ping"
    assert session["request_id"] == run["id"] == run_id_of(run["task_id"], NINE)
    assert (session["id"], session["output"]) == (run["session_id"], "pong")
    task = (await scheduled.tasks())["ping"]
    assert task["next_run_at"] == NINE + timedelta(days=1)
    assert task["last_run_at"] == NINE
    assert task["last_result"]["outcome"] == "ran"


@pytest.mark.scenario("S001-40")
async def test_declared_schedule_starts_a_session_or_runs_a_job(scheduled: ScheduledButler) -> None:
    scheduled.write(
        'name = "greet"\ncron = "0 9 * * *"\ndispatch_mode = "prompt"\nprompt = "ping"',
        'name = "sweep"\ncron = "0 10 * * *"\ndispatch_mode = "job"\njob_name = "sweep"',
        extra="[modules.tester]",
    )
    (scheduled.directory / "modules").mkdir()
    (scheduled.directory / "modules" / "__init__.py").write_text(SWEEPER)
    await scheduled.start()
    declared = {
        name: (task["cron"], task["dispatch_mode"])
        for name, task in (await scheduled.tasks()).items()
    }
    assert declared == {"greet": ("0 9 * * *", "prompt"), "sweep": ("0 10 * * *", "job")}

    assert await tick_at(scheduled, NINE) == {"queued": ["greet"]}
    (greeted,) = await scheduled.ended("greet")
    (session,) = await scheduled.rows("SELECT * FROM sessions")
    assert (session["prompt"], session["output"]) == ("ping", "pong")
    assert session["id"] == greeted["session_id"]
    assert session["runtime"] == scheduled.butler.spawner.runtime.name

    assert await tick_at(scheduled, NINE + timedelta(hours=1)) == {"queued": ["sweep"]}
    (swept,) = await scheduled.ended("sweep")
    assert (swept["outcome"], swept["session_id"]) == ("ran", None)
    assert await scheduled.rows("SELECT key, value FROM state") == [
        {"key": "swept", "value": "sweep"}
    ]
    assert len(await scheduled.rows("SELECT FROM sessions")) == 1  # the one of before


async def test_the_tick_tool_and_the_loop_fire_once(scheduled: ScheduledButler) -> None:
    scheduled.write(PING)
    await scheduled.start(loop=True)
    scheduled.clock.at = NINE
    answers = await asyncio.gather(*(scheduled.call("tick") for _ in range(6)))
    assert [answer for answer in answers if answer] in (
        [],
        [{"queued": ["ping"]}],
    )  # or the loop did
    await scheduled.ended("ping")
    assert len(await scheduled.runs("ping")) == 1
    assert len(await scheduled.rows("SELECT FROM sessions")) == 1


async def test_many_concurrent_ticks_share_a_large_load(running: ScheduledButler) -> None:
    """Three batches and six concurrent ticks: every due time is claimed exactly once."""
    scheduler = running.butler.service(Scheduler)
    await running.rows(
        """
        INSERT INTO scheduled_tasks (id, name, cron, prompt, next_run_at)
        SELECT gen_random_uuid(), 'task ' || n, '0 9 * * *', 'ping', $1
        FROM generate_series(1, 250) AS n
        """,
        NINE,
    )
    running.clock.at = NINE
    found = await asyncio.gather(*(scheduler.tick() for _ in range(6)))
    again = await scheduler.tick()
    queued = [name for summary in (*found, again) for name in summary.names("queued")]
    assert len(queued) == len(set(queued))
    assert await scheduler.tick() == type(again)()
    runs = await running.rows("SELECT task_name, due_at FROM schedule_runs")
    assert sorted(run["task_name"] for run in runs) == sorted(f"task {n}" for n in range(1, 251))
    assert {run["due_at"] for run in runs} == {NINE}


async def test_a_crash_after_the_claim_loses_nothing(scheduled: ScheduledButler) -> None:
    """The claim is committed, the worker dies; the next start runs it."""
    scheduled.write(PING)
    butler = await scheduled.start()
    await scheduled.stop()
    scheduled.clock.at = NINE
    await tick_and_die(butler, scheduled)

    await scheduled.start()
    (run,) = await scheduled.ended("ping")
    assert (run["outcome"], run["due_at"]) == ("ran", NINE)
    assert len(await scheduled.runs("ping")) == 1
    (item,) = await scheduled.rows("SELECT * FROM queue_items WHERE queue = 'schedules'")
    assert item["attempts"] == 2
    assert await scheduled.sent() == []


async def tick_and_die(butler: Butler, scheduled: ScheduledButler) -> None:
    """Claim a run like a process that then dies and leaves its lease."""
    database = await Database.open(butler.database.login, "dying")
    try:
        scheduler = Scheduler(butler.config, database, butler.listener, scheduled.clock, {})
        assert (await scheduler.tick()).names("queued") == ["ping"]
        async with database.transaction() as connection:
            (lease,) = await queue.claim(connection, SCHEDULES, holder=4711)
            await schedules.begin_run(connection, UUID(lease.payload["run_id"]), NINE)
    finally:
        await database.close()


async def test_recorded_run_is_not_repeated(scheduled: ScheduledButler) -> None:
    """The run ended, but the worker died before completing the queue item."""
    scheduled.write(PING)
    await scheduled.start()
    await tick_at(scheduled, NINE)
    (run,) = await scheduled.ended("ping")
    runner = TaskRunner(
        "tester",
        scheduled.butler.database,
        scheduled.clock,
        scheduled.butler.spawner,
        scheduled.butler.recovery,
        {},
        timeout_s=5,
    )
    payload = {"run_id": str(run["id"]), "start_at": NINE.isoformat()}
    lease = queue.Lease(run["id"], "schedules", str(run["id"]), payload, 2, 8, 2)
    assert await runner.process(lease) is None
    assert await scheduled.sent() == []
    assert len(await scheduled.rows("SELECT FROM sessions")) == 1


async def test_a_dead_letter_is_a_failed_run(scheduled: ScheduledButler) -> None:
    scheduled.write('name = "spread"\ncron = "*/30 * * * *"\nprompt = "ping"')
    await scheduled.start()
    scheduled.clock.at = datetime(2026, 5, 13, 6, 30, tzinfo=UTC)
    scheduler = scheduled.butler.service(Scheduler)
    async with scheduled.butler.database.transaction() as connection:
        # Held far in the future, so that no worker takes it.
        task = (await schedules.read_due(connection, scheduled.clock.at, 1))[0]
        assert await schedules.claim(
            connection, [(task.id, scheduled.clock.at, scheduled.clock.at + timedelta(minutes=30))]
        ) == {task.id}
        run_id = run_id_of(task.id, scheduled.clock.at)
        run = schedules.Run(run_id, task.id, task.name, scheduled.clock.at)
        await schedules.open_run(connection, run, scheduled.clock.at, timedelta(days=1))
        await connection.execute(
            "UPDATE queue_items SET state = 'dead', error = 'the worker died' WHERE queue = 'schedules'"
        )
    await scheduler.tick()
    (ended,) = await scheduled.runs("spread")
    assert (ended["outcome"], ended["detail"]) == ("failed", "the worker died")


@pytest.mark.parametrize(
    ("missed", "outcomes", "asked"),
    [
        ('missed = "skip"', ["missed", "missed"], 0),
        ('missed = "once"', ["skipped", "ran"], 0),
        ('missed = "once"\nmissed_within_s = 3600', ["missed", "missed"], 0),
        ('missed = "ask"', ["missed", "missed"], 1),
        ('missed = "ask"\nmissed_within_s = 3600', ["missed", "missed"], 0),
    ],
)
async def test_downtime(
    scheduled: ScheduledButler, missed: str, outcomes: list[str], asked: int
) -> None:
    """The butler is down for three days."""
    scheduled.write(f"{PING}\n{missed}")
    await scheduled.start()
    await scheduled.stop()
    scheduled.clock.at = NINE + timedelta(days=2, hours=3)
    await scheduled.start()
    runs = await scheduled.ended("ping", 2)
    assert [run["outcome"] for run in runs] == outcomes
    assert [run["due_at"] for run in runs] == [NINE, NINE + timedelta(days=2)]
    assert all(run["detail"] for run in runs)
    assert len(await scheduled.rows("SELECT FROM sessions")) == outcomes.count("ran")
    sent = await scheduled.sent()
    assert len(sent) == asked
    if sent:
        assert "'ping'" in sent[0]["message"]
        assert sent[0]["target"] == "console:owner"
    task = (await scheduled.tasks())["ping"]
    assert task["next_run_at"] == NINE + timedelta(days=3)
    await scheduled.butler.service(Scheduler).tick()
    assert len(await scheduled.runs("ping")) == 2


async def test_run_now_after_a_question_runs_the_task(scheduled: ScheduledButler) -> None:
    scheduled.write(f'{PING}\nmissed = "ask"')
    await scheduled.start()
    await scheduled.stop()
    scheduled.clock.at = NINE + timedelta(hours=5)
    await scheduled.start()
    await until("the question", scheduled.sent)
    task = (await scheduled.tasks())["ping"]
    await scheduled.call("schedule_update", id=str(task["id"]), run_now=True)
    runs = await scheduled.ended("ping", 2)
    assert [run["outcome"] for run in runs] == ["missed", "ran"]
    assert (await scheduled.tasks())["ping"]["next_run_at"] == NINE + timedelta(days=1)


async def test_run_claimed_before_a_long_downtime_is_missed(scheduled: ScheduledButler) -> None:
    scheduled.write('name = "spread"\ncron = "0 */6 * * *"\nprompt = "ping"')
    await scheduled.start()
    task = (await scheduled.tasks())["spread"]
    due = task["next_run_at"]
    async with scheduled.butler.database.transaction() as connection:
        await schedules.claim(connection, [(task["id"], due, due + timedelta(hours=6))])
        scheduled.clock.at = due + timedelta(hours=2)
        run = schedules.Run(run_id_of(task["id"], due), task["id"], "spread", due)
        await schedules.open_run(connection, run, due, timedelta(0))
    (run_row,) = await scheduled.ended("spread")
    assert run_row["outcome"] == "missed"
    assert "2 h late" in run_row["detail"]
    assert await scheduled.rows("SELECT FROM sessions") == []


async def test_falsy_check_starts_no_session(scheduled: ScheduledButler) -> None:
    scheduled.write(f'{PING}\ncheck = "anything_new"')
    await scheduled.start()
    answers = [[], ["a bill"]]
    seen: list[JobContext] = []

    async def anything_new(job: JobContext) -> list[str]:
        seen.append(job)
        return answers.pop(0)

    jobs_of(scheduled)["anything_new"] = anything_new
    await tick_at(scheduled, NINE)
    (run,) = await scheduled.ended("ping")
    assert run["outcome"] == "nothing-to-say"
    assert await scheduled.rows("SELECT FROM sessions") == []
    await tick_at(scheduled, NINE + timedelta(days=1))
    _, second = await scheduled.ended("ping", 2)
    assert second["outcome"] == "ran"
    assert len(await scheduled.rows("SELECT FROM sessions")) == 1
    assert [job.due_at for job in seen] == [NINE, NINE + timedelta(days=1)]


JOB = 'name = "{0}"\ncron = "0 9 * * *"\ndispatch_mode = "job"\njob_name = "{0}"\njob_args = {{n = 7}}'


async def test_jobs_fail_alone_and_write_with_their_outcome(scheduled: ScheduledButler) -> None:
    names = ("works", "crashes", "unknown", "hangs")
    scheduled.write(*(JOB.format(name) for name in names), extra="runtime.timeout_s = 2")
    await scheduled.start()

    async def works(job: JobContext) -> str:
        await job.connection.execute("INSERT INTO state VALUES ('works', $1)", job.arguments["n"])
        return f"swept for {job.task}"

    async def crashes(job: JobContext) -> None:
        await job.connection.execute("INSERT INTO state VALUES ('crashes', '1')")
        raise ValueError("no \x00 broom")

    async def hangs(_job: JobContext) -> None:
        await asyncio.sleep(60)

    jobs_of(scheduled).update(works=works, crashes=crashes, hangs=hangs)
    await tick_at(scheduled, NINE)
    found = {name: (await scheduled.ended(name))[0] for name in names}
    assert {name: run["outcome"] for name, run in found.items()} == {
        "works": "ran",
        "crashes": "failed",
        "unknown": "failed",
        "hangs": "failed",
    }
    assert found["works"]["detail"] == "swept for works"
    assert found["crashes"]["detail"] == "ValueError: no \\x00 broom"
    assert found["unknown"]["detail"] == "unknown job 'unknown'"
    assert "longer than 2 s" in found["hangs"]["detail"]
    assert await scheduled.rows("SELECT key, value FROM state") == [{"key": "works", "value": 7}]
    assert await scheduled.rows("SELECT FROM sessions") == []


async def test_retryable_failure_is_retried(scheduled: ScheduledButler) -> None:
    scheduled.write(JOB.format("flaky"))
    await scheduled.start()
    tries: list[UUID] = []

    async def flaky(job: JobContext) -> None:
        tries.append(job.run_id)
        if len(tries) < 3:
            raise DatabaseUnavailable("not yet")

    jobs_of(scheduled)["flaky"] = flaky
    await tick_at(scheduled, NINE)
    (run,) = await scheduled.ended("flaky")
    assert (run["outcome"], tries) == ("ran", [run["id"]] * 3)


async def test_due_time_is_skipped_while_a_run_is_unfinished(scheduled: ScheduledButler) -> None:
    scheduled.write(JOB.format("slow").replace("0 9 * * *", "0 * * * *"))
    await scheduled.start()
    entered, gate = asyncio.Event(), asyncio.Event()

    async def slow(_job: JobContext) -> None:
        entered.set()
        await gate.wait()

    jobs_of(scheduled)["slow"] = slow
    await tick_at(scheduled, NINE)
    try:
        await until("it to run", lambda: entered.is_set() or None)
        assert await tick_at(scheduled, NINE + timedelta(hours=1)) == {"skipped": ["slow"]}
    finally:
        gate.set()
    runs = await scheduled.ended("slow", 2)
    assert [run["outcome"] for run in runs] == ["ran", "skipped"]
    assert "09:00" in runs[1]["detail"]


async def test_a_task_disabled_or_deleted_after_its_claim_is_skipped(
    running: ScheduledButler,
) -> None:
    made = await running.call("schedule_create", name="gone", cron="@hourly", prompt="ping")
    due = datetime.fromisoformat(made["next_run_at"])
    async with running.butler.database.transaction() as connection:
        task = await schedules.find_task(connection, UUID(made["id"]))
        assert task is not None
        await schedules.delete_task(connection, task.id)
        run = schedules.Run(run_id_of(task.id, due), task.id, "gone", due)
        await schedules.open_run(connection, run, running.clock.now(), timedelta(0))
    (run_row,) = await running.ended("gone")
    assert (run_row["outcome"], run_row["detail"]) == ("skipped", "the schedule was deleted")


async def test_task_with_an_invalid_zone_fails_alone(scheduled: ScheduledButler) -> None:
    scheduled.write(PING)
    await scheduled.start()
    await scheduled.rows(
        "INSERT INTO scheduled_tasks (id, name, cron, timezone, prompt, next_run_at)"
        " VALUES (gen_random_uuid(), 'odd', '0 9 * * *', 'Mars/Olympus', 'ping', $1)",
        NINE,
    )
    assert await tick_at(scheduled, NINE) == {"queued": ["ping"], "failed": ["odd"]}
    (run,) = await scheduled.ended("odd")
    assert "Mars/Olympus" in run["detail"]
    assert (await scheduled.ended("ping"))[0]["outcome"] == "ran"


async def test_a_change_wakes_the_loop(looping: ScheduledButler) -> None:
    """Only the loop ticks here; without the wake-up it would sleep for a minute."""
    made = await looping.call("schedule_create", name="soon", cron="@daily", prompt="ping")
    await looping.call("schedule_update", id=made["id"], run_now=True)
    (run,) = await looping.ended("soon")
    assert run["outcome"] == "ran"
