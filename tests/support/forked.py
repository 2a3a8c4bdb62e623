"""Processes of a fleet by fork: what takes longest about a start, its imports, happens once for all of them.

What is forked is a process of its own like any other: it has its own environment, arguments and log, which it
reads after the fork, and is killed, frozen and waited for by its pid. Run as a program, this is the one that
is forked: it takes orders by a socket, a line of JSON each, and ends when nobody is there to give any.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.01


class Nursery:
    """Where processes are forked; gone when it is closed, and with whoever made it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.forked", str(theirs.fileno())],
                env={
                    "PATH": os.environ["PATH"],
                    "LANG": "C.UTF-8",
                    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
                },
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._line = ours
        self._orders, self._answers = ours.makefile("w"), ours.makefile("r")
        self._alone = threading.Lock()

    def close(self) -> None:
        for end in (self._orders, self._answers, self._line):
            end.close()
        self._process.wait()

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path
    ) -> Forked:
        order = {"arguments": list(arguments), "env": dict(env), "log": str(log), "cwd": str(cwd)}
        return Forked(self.ask(order)["pid"], self)

    def ask(self, order: Mapping[str, Any]) -> Any:
        with self._alone:
            print(json.dumps(order), file=self._orders, flush=True)
            return json.loads(self._answers.readline())


@dataclass
class Forked:
    """What a test does with a process that it has started."""

    pid: int
    nursery: Nursery
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.nursery.ask({"ended": self.pid})["code"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _obey(line: socket.socket) -> dict[str, Any] | None:
    """Fork what is ordered. In the child, and only there, this returns the order."""
    codes: dict[int, int] = {}
    answers, orders = line.makefile("w"), line.makefile("r")
    for order in map(json.loads, orders):
        if "ended" in order:
            answer = {"code": _ended(order["ended"], codes)}
        elif pid := os.fork():
            answer = {"pid": pid}
        else:
            for end in (answers, orders, line):
                end.close()
            return dict(order)
        print(json.dumps(answer), file=answers, flush=True)
    return None


def _ended(pid: int, codes: dict[int, int]) -> int | None:
    if pid not in codes:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes.get(pid)


def _become(order: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.argv = ["butlers", *order["arguments"]]


def _import_all() -> None:
    import butlers

    for module in pkgutil.walk_packages(butlers.__path__, "butlers."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    _import_all()
    order = _obey(socket.socket(fileno=int(sys.argv[1])))
    if order is not None:
        _become(order)
        from butlers.cli.main import main

        sys.exit(main())
