"""The reaper ends its child's descendants, also when the daemon is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from butlers.process import reaper
from butlers.process.handle import held_by_stdin
from support.fleet import wait_for

DAEMON = """
import asyncio, sys
from pathlib import Path
from butlers.process.runner import TimeLimits
from butlers.process.runner import ProcessCommand, run_events

async def main():
    program = sys.argv[1]
    command = ProcessCommand(("/bin/sh", "-c", program), {"PATH": "/usr/bin:/bin"}, Path(sys.argv[2]))
    await run_events(command, TimeLimits(), lambda event: False)

asyncio.run(main())
"""
DETACHED = (
    "echo $$ > first; setsid sh -c 'echo $$ > second; sleep 3600' &"
    " setsid sleep 3600 & echo $! > third; wait"
)


def gone(number: int) -> bool:
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def noted(folder: Path, *names: str) -> list[int]:
    """The numbers that were written down, once all of them are."""

    def all_of_them() -> list[int] | None:
        files = [folder / name for name in names]
        texts = [file.read_text().strip() for file in files if file.exists()]
        return [int(text) for text in texts] if all(texts) and len(texts) == len(names) else None

    return wait_for(f"{names} to be noted", all_of_them)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_killed_daemon_leaves_no_process_of_a_session(
    tmp_path: Path, number: signal.Signals
) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, DETACHED, str(tmp_path)])
    try:
        session = noted(tmp_path, "first", "second", "third")
        (holder,) = psutil.Process(daemon.pid).children()
        daemon.send_signal(number)
        daemon.wait()
        wait_for("all to be gone", lambda: all(gone(one) for one in [*session, holder.pid]))
    finally:
        daemon.kill()
        daemon.wait()


@contextmanager
def held(order: bytes) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Start a reaper with a control socket of this test."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = [sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno())]
        process = subprocess.Popen(program, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        ours.sendall(order)
        try:
            yield process, ours
        finally:
            ours.close()
            process.wait()


def to_run(program: str, folder: Path) -> bytes:
    return reaper.encode_command(("/bin/sh", "-c", program), {"PATH": "/usr/bin:/bin"}, str(folder))


def test_reaper_exits_without_a_command() -> None:
    with held(b"") as (process, ours):
        ours.close()
        assert process.wait() == 0


def test_reaper_exits_after_half_a_command(tmp_path: Path) -> None:
    whole = to_run("touch begun", tmp_path)
    with held(whole[: len(whole) // 2]) as (process, ours):
        ours.close()
        assert process.wait() == 0
    assert not (tmp_path / "begun").exists()


def test_reaper_exits_as_its_child(tmp_path: Path) -> None:
    for program, code in (("exit 5", 5), ("kill -9 $$", -9), ("kill -15 $$", -15)):
        with held(to_run(program, tmp_path)) as (process, _):
            assert process.wait() == code


def test_sigterm_to_the_group_is_handled_by_the_child(tmp_path: Path) -> None:
    """The group is asked; the reaper stays until its child has left in its own way."""
    program = "trap 'exit 6' TERM; echo $$ > child; while :; do sleep 0.01; done"
    with held(to_run(program, tmp_path)) as (process, _):
        noted(tmp_path, "child")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait() == 6


def test_orphans_that_exit_are_reaped(tmp_path: Path) -> None:
    """A session of hours must not gather the dead that fell back to the reaper."""
    program = "for n in 1 2 3 4 5; do (setsid true &) ; done; echo 1 > done; sleep 3600"
    with held(to_run(program, tmp_path)) as (process, _):
        noted(tmp_path, "done")
        wait_for(
            "the dead to be buried",
            lambda: len(psutil.Process(process.pid).children(recursive=True)) == 2,
        )


def test_descendants_that_keep_forking_are_killed(tmp_path: Path) -> None:
    program = "while :; do setsid sh -c 'sleep 3600' & echo 1 > begun; sleep 0.001; done"
    with held(to_run(program, tmp_path)) as (process, ours):
        noted(tmp_path, "begun")
        below = psutil.Process(process.pid).children(recursive=True)
        ours.close()
        process.wait()
        assert all(gone(one.pid) for one in below)


# -- held by its stdin -----------------------------------------------------------------------------

HOLDER = """
import subprocess, sys, time
from butlers.process.handle import held_by_stdin
subprocess.Popen(held_by_stdin(("/bin/sh", "-c", sys.argv[1])), stdin=subprocess.PIPE, cwd=sys.argv[2])
time.sleep(3600)
"""


def by_its_stdin(program: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        held_by_stdin(("/bin/sh", "-c", program)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )


def test_child_reads_the_reapers_stdin(tmp_path: Path) -> None:
    process = by_its_stdin("cat; exit 5", tmp_path)
    assert process.communicate(b"x" * 200_000)[0] == b"x" * 200_000
    assert process.returncode == 5, "a child that exits at the end of stdin is not killed"


def test_child_that_ignores_stdin_end_is_killed_with_descendants(tmp_path: Path) -> None:
    process = by_its_stdin(f"exec < /dev/null; {DETACHED}", tmp_path)
    session = noted(tmp_path, "first", "second", "third")
    assert process.communicate()[0] == b""
    assert process.returncode == -signal.SIGKILL
    assert all(gone(one) for one in session)


def test_killed_holder_of_stdin_leaves_no_process(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, DETACHED, str(tmp_path)])
    try:
        session = noted(tmp_path, "first", "second", "third")
        holder.kill()
        holder.wait()
        wait_for("all to be gone", lambda: all(gone(one) for one in session))
    finally:
        holder.kill()
        holder.wait()


def test_missing_program_held_by_stdin_is_reported() -> None:
    done = subprocess.run(held_by_stdin(("/nowhere/at-all",)), capture_output=True, check=False)
    assert done.returncode == reaper.NOT_STARTED
    assert b"/nowhere/at-all could not be started" in done.stderr
