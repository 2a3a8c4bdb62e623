"""The process runner, tested with small real programs. No test asserts a duration."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from butlers.process import runner
from butlers.process.runner import (
    EndReason,
    Event,
    ProcessCommand,
    ProcessEnd,
    ScriptLimits,
    TimeLimits,
    run_events,
    run_script,
)
from support.fleet import wait_for

PATIENT = TimeLimits(startup_s=60, silence_s=60, total_s=60)
SOON = 0.3


@dataclass
class Trial:
    """Runs a small Python program as a session, and keeps its events."""

    folder: Path
    events: list[Event] = field(default_factory=list)

    async def run(
        self,
        program: str,
        *,
        limits: TimeLimits = PATIENT,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> ProcessEnd:
        argv = (sys.executable, "-I", "-S", "-c", f"import json, os, sys, time\n{program}")
        command = ProcessCommand(
            argv, env or {"PATH": "/usr/bin:/bin"}, self.folder, stdin.encode()
        )
        return await run_events(command, limits, self.hear)

    def hear(self, event: Event) -> bool:
        self.events.append(event)
        return event.get("last") is True

    def noted(self, name: str = "pid") -> int | None:
        """A process id that the program has written down."""
        file = self.folder / name
        return int(file.read_text() or 0) if file.exists() else None


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a program time to react to SIGTERM on a busy machine."""
    monkeypatch.setattr(runner, "GRACE_S", 60.0)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


async def until_noted(trial: Trial, name: str = "pid") -> int:
    return await asyncio.to_thread(wait_for, f"{name} to be noted", lambda: trial.noted(name))


def gone(number: int) -> bool:
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- what goes in and comes out --------------------------------------------------------------------


async def test_a_long_prompt_arrives_whole(trial: Trial) -> None:
    prompt = "Grüße, " * 60_000
    ended = await trial.run(
        "print(json.dumps({'said': sys.stdin.buffer.read().decode()}))", stdin=prompt
    )
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, 0)
    assert trial.events == [{"said": prompt}]


async def test_program_may_ignore_its_stdin(trial: Trial) -> None:
    ended = await trial.run("print('{}')", stdin="x" * 1_000_000)
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, 0)
    assert trial.events == [{}]


async def test_a_line_of_many_megabytes(trial: Trial) -> None:
    await trial.run("print(json.dumps({'text': 'x' * 10_000_000}))\nprint('{\"after\": 1}')")
    first, second = trial.events
    assert len(first["text"]) == 10_000_000
    assert second == {"after": 1}


async def test_a_line_beyond_the_limit_is_skipped_as_a_whole(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_LINE", 100_000)
    await trial.run(
        "print('{\"before\": 1}')\n"
        "print(json.dumps({'text': 'x' * 900_000}))\n"
        "print('{\"after\": 1}')\n"
        "sys.stdout.write(json.dumps({'text': 'x' * 900_000}))"  # and the last one, which has no end
    )
    assert trial.events == [{"before": 1}, {"after": 1}]


async def test_lines_that_are_not_events_are_skipped(trial: Trial) -> None:
    junk = r"b'banner\n\n[1]\n42\nnull\n\"text\"\n{broken\n\xff\xfe\n' + b'[' * 100_000 + b'\n'"
    await trial.run(
        f"sys.stdout.buffer.write({junk})\n"
        'sys.stdout.buffer.write(b\'{"one": 1}\\r\\n  {"two": 2}\\n{"three": 3}\')'
    )
    assert trial.events == [{"one": 1}, {"two": 2}, {"three": 3}]


async def test_process_has_only_the_given_environment_and_folder(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "secret")
    given = {"ONE": "1", "GRÜSSE": "ä b", "EMPTY": ""}
    await trial.run(
        "print(json.dumps({'env': open('/proc/self/environ', errors='surrogateescape').read(),"
        " 'cwd': os.getcwd()}))",
        env=given,
    )
    (event,) = trial.events
    found = dict(entry.split("=", 1) for entry in event["env"].strip("\0").split("\0"))
    assert found == given
    assert event["cwd"] == str(trial.folder)


async def test_process_inherits_no_open_files(trial: Trial) -> None:
    await trial.run("print(json.dumps({'open': sorted(map(int, os.listdir('/proc/self/fd')))}))")
    (event,) = trial.events
    assert event["open"][:3] == [0, 1, 2]
    assert len(event["open"]) == 4  # and the listing itself


async def test_process_does_not_ignore_sigpipe(trial: Trial) -> None:
    """A program that writes into a closed pipe is to be ended by that."""
    ask = """printf '{"ignored": "%s"}' $(sed -n 's/SigIgn:[[:space:]]*//p' /proc/self/status)"""
    command = ProcessCommand(("/bin/sh", "-c", ask), {"PATH": "/usr/bin:/bin"}, trial.folder)
    await run_events(command, PATIENT, trial.hear)
    ignored = int(trial.events[0]["ignored"], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


async def test_the_end_of_stderr_is_kept(trial: Trial) -> None:
    ended = await trial.run("sys.stderr.write('x' * 3_000_000 + ' the end')\nsys.exit(3)")
    assert ended.exit.code == 3
    assert ended.exit.stderr.endswith("x the end")
    assert len(ended.exit.stderr) == runner.STDERR_KEPT


async def test_exit_code_is_the_negative_signal(trial: Trial) -> None:
    ended = await trial.run("print('{}', flush=True)\nos.kill(os.getpid(), 11)")
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, -signal.SIGSEGV)


@pytest.mark.parametrize(
    ("argv", "cwd"),
    [(("/no/such/program",), "."), (("no-such-program",), "."), (("/bin/true",), "no/such/folder")],
)
async def test_missing_program_or_folder_is_not_found(
    trial: Trial, argv: tuple[str, ...], cwd: str
) -> None:
    ended = await run_events(ProcessCommand(argv, {}, trial.folder / cwd), PATIENT, trial.hear)
    assert (ended.reason, ended.exit.code) == (EndReason.NOT_FOUND, None)
    assert "No such file" in ended.exit.stderr


async def test_file_that_is_not_executable_is_not_found(trial: Trial) -> None:
    (trial.folder / "text").write_text("no program")
    command = ProcessCommand((str(trial.folder / "text"),), {}, trial.folder)
    ended = await run_events(command, PATIENT, trial.hear)
    assert ended.reason is EndReason.NOT_FOUND
    assert "Permission denied" in ended.exit.stderr


# -- limits ------------------------------------------------------------------------------------------


async def test_startup_limit_ends_the_process(trial: Trial) -> None:
    limits = TimeLimits(startup_s=SOON, silence_s=60, total_s=60)
    ended = await trial.run("print('no event', flush=True)\ntime.sleep(3600)", limits=limits)
    assert ended.reason is EndReason.NEVER_BEGAN
    assert trial.events == []


async def test_silence_limit_ends_the_process(trial: Trial) -> None:
    limits = TimeLimits(startup_s=60, silence_s=SOON, total_s=60)
    ended = await trial.run(
        "print('{}', flush=True)\nwhile True: print('no event', flush=True); time.sleep(0.01)",
        limits=limits,
    )
    assert ended.reason is EndReason.FELL_SILENT
    assert trial.events == [{}]


async def test_total_limit_ends_the_process(trial: Trial) -> None:
    limits = TimeLimits(startup_s=60, silence_s=60, total_s=2.0)
    ended = await trial.run(
        "while True: print('{}', flush=True); time.sleep(0.01)",
        limits=limits,
    )
    assert ended.reason is EndReason.TOOK_TOO_LONG
    assert trial.events


async def test_total_limit_wins_over_a_longer_startup_limit(trial: Trial) -> None:
    limits = TimeLimits(startup_s=60, silence_s=60, total_s=SOON)
    assert (await trial.run("time.sleep(3600)", limits=limits)).reason is EndReason.TOOK_TOO_LONG


# -- its end -----------------------------------------------------------------------------------------


async def test_process_may_exit_by_itself_after_its_last_event(trial: Trial) -> None:
    ended = await trial.run(
        "print('{\"last\": true}', flush=True)\nprint('{\"more\": 1}', flush=True)\nsys.exit(4)"
    )
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, 4)
    assert trial.events == [{"last": True}]


@pytest.mark.usefixtures("long_grace")
async def test_process_that_stays_after_its_last_event_is_ended(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "EXIT_S", SOON)
    ended = await trial.run("print('{\"last\": true}', flush=True)\ntime.sleep(3600)")
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, -signal.SIGTERM)


@pytest.mark.usefixtures("long_grace")
async def test_process_that_closes_stdout_is_ended(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "EXIT_S", SOON)
    ended = await trial.run("os.close(1)\ntime.sleep(3600)")
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, -signal.SIGTERM)


@pytest.mark.usefixtures("long_grace")
async def test_process_gets_sigterm_first(trial: Trial) -> None:
    limits = TimeLimits(startup_s=60, silence_s=SOON, total_s=60)
    ended = await trial.run(
        "import signal\n"
        "signal.signal(15, lambda *_: (open('asked', 'w'), sys.exit(7)))\n"
        "print('{}', flush=True)\ntime.sleep(3600)",
        limits=limits,
    )
    assert (ended.reason, ended.exit.code) == (EndReason.FELL_SILENT, 7)
    assert (trial.folder / "asked").exists()


async def test_process_that_ignores_sigterm_is_killed(trial: Trial) -> None:
    limits = TimeLimits(startup_s=60, silence_s=SOON, total_s=60)
    ended = await trial.run(
        "import signal\nsignal.signal(15, signal.SIG_IGN)\n"
        "open('pid', 'w').write(str(os.getpid()))\nprint('{}', flush=True)\ntime.sleep(3600)",
        limits=limits,
    )
    assert (ended.reason, ended.exit.code) == (EndReason.FELL_SILENT, -signal.SIGKILL)
    assert gone(await until_noted(trial))


GRANDCHILDREN = {
    "plain": "subprocess.Popen(sleep)",
    "with our output in its hand": "subprocess.Popen(sleep, stdout=1, stderr=2)",
    "deaf": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; sleep 3600; sleep 3600'])",
    "in a session of its own": "subprocess.Popen(sleep, start_new_session=True)",
    "without a parent": "subprocess.Popen(['sh', '-c', 'setsid sleep 3600 & echo $! > orphan'])",
}


@pytest.mark.parametrize("start", GRANDCHILDREN.values(), ids=GRANDCHILDREN.keys())
@pytest.mark.parametrize("leaves", [True, False], ids=["it leaves", "it is ended"])
async def test_no_descendant_survives(trial: Trial, start: str, leaves: bool) -> None:
    stay = "" if leaves else "time.sleep(3600)"
    limits = TimeLimits(startup_s=60, silence_s=SOON * 2, total_s=60)
    await trial.run(
        f"import subprocess\nsleep = ['sleep', '3600']\nchild = {start}\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "while 'orphan' in child.args[-1] and not os.path.exists('orphan'): time.sleep(0.001)\n"
        f"print('{{}}', flush=True)\n{stay}",
        limits=limits,
    )
    assert trial.events == [{}]
    assert gone(await until_noted(trial))
    if (trial.folder / "orphan").exists():
        assert gone(await until_noted(trial, "orphan"))


DEAF = "import signal; signal.signal(15, signal.SIG_IGN)\n"
BUSY = "while True: print('x' * 100_000)"


@pytest.mark.parametrize("busy", ["time.sleep(3600)", BUSY, DEAF + BUSY])
async def test_cancellation_ends_all_descendants(trial: Trial, busy: str) -> None:
    """Also a process whose output is not read any more."""
    session = asyncio.create_task(
        trial.run(
            "import subprocess\nchild = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
            "open('child', 'w').write(str(child.pid))\n"
            f"open('pid', 'w').write(str(os.getpid()))\n{busy}"
        )
    )
    own, child = await until_noted(trial), await until_noted(trial, "child")
    session.cancel()
    with pytest.raises(asyncio.CancelledError):
        await session
    assert gone(own)
    assert gone(child)


async def test_second_cancellation_still_ends_the_process(trial: Trial) -> None:
    session = asyncio.create_task(
        trial.run(
            "import signal\nsignal.signal(15, signal.SIG_IGN)\n"
            "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(3600)"
        )
    )
    own = await until_noted(trial)
    session.cancel()
    await asyncio.sleep(0)  # it now waits for the process to go
    session.cancel()
    with pytest.raises(asyncio.CancelledError):
        await session
    await asyncio.to_thread(wait_for, "it to be gone", lambda: gone(own))


async def test_cancellation_before_the_start_starts_nothing(trial: Trial) -> None:
    before = psutil.Process().children()
    session = asyncio.create_task(trial.run("open('pid', 'w').write(str(os.getpid()))"))
    await asyncio.sleep(0)
    session.cancel()
    with pytest.raises(asyncio.CancelledError):
        await session
    assert psutil.Process().children() == before
    assert trial.noted() is None


# -- scripts -----------------------------------------------------------------------------------------


async def script(trial: Trial, program: str, limits: ScriptLimits) -> ProcessEnd:
    argv = (sys.executable, "-I", "-S", "-c", f"import os, sys, time\n{program}")
    return await run_script(ProcessCommand(argv, {}, trial.folder, b"input"), limits)


async def test_script_returns_its_output_and_the_end_of_its_errors(trial: Trial) -> None:
    program = "sys.stdout.write(sys.stdin.read())\nsys.stderr.write('x' * 100 + 'end')\nsys.exit(3)"
    ended = await script(trial, program, ScriptLimits(errors=10))
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, 3)
    assert (ended.stdout, ended.stderr) == (b"input", b"x" * 7 + b"end")


async def test_script_with_too_much_output_is_ended(trial: Trial) -> None:
    ended = await script(trial, "while True: print('x' * 1000)", ScriptLimits(output=5_000))
    assert (ended.reason, len(ended.stdout)) == (EndReason.OUTPUT_TOO_LARGE, 5_000)


async def test_script_may_close_its_output_and_go_on(trial: Trial) -> None:
    program = "os.close(1)\ntime.sleep(0.2)\nsys.exit(5)"
    ended = await script(trial, program, ScriptLimits())
    assert (ended.reason, ended.exit.code) == (EndReason.EXITED, 5)


async def test_script_that_takes_too_long_is_ended(trial: Trial) -> None:
    ended = await script(trial, "time.sleep(3600)", ScriptLimits(seconds=SOON))
    assert ended.reason is EndReason.TOOK_TOO_LONG


async def test_script_that_cannot_be_started_raises(trial: Trial) -> None:
    with pytest.raises(FileNotFoundError, match="could not be started"):
        await run_script(ProcessCommand(("/no/such/program",), {}, trial.folder), ScriptLimits())
