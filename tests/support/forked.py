"""Processes and commands of ``butlers`` by fork: the imports, the longest part of a start, happen once.

A forked process is a process of its own like any other: it has its own environment, arguments and output,
which it reads after the fork, and is killed, frozen and waited for by its pid. Run as a program, this module
is the process that forks: it takes orders by a socket, a line of JSON each, and ends with its owner.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.offline import OWN_NAMESPACE

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.01
PATIENCE_S = 120.0
# Imported at first use by a butler that serves or a command that asks one.
LATE_IMPORTS = (
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "asyncpg",
    "certifi",
    "fastmcp.server.context",
    "fastmcp.server.elicitation",
    "fastmcp.server.providers.prefab_payload",
    "fastmcp.server.sessions",
    "fastmcp.server.transforms.catalog",
    "griffe",
    "h11",
    "httpcore",
    "multiprocessing.connection",
    "rich.console",
    "rich.table",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.http.h11_impl",
)


class Nursery:
    """The process that forks; it ends with the process that made it."""

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

    def is_running(self) -> bool:
        return self._process.poll() is None

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        cwd: Path,
        *,
        stdin: Path | None = None,
        errors: Path | None = None,
    ) -> Forked:
        # Here, not in the child: who waits for a word in the log reads it before the child may have run.
        log.touch(mode=0o600)
        order = {
            "arguments": list(arguments),
            "env": dict(env),
            "cwd": str(cwd),
            "stdin": str(stdin or os.devnull),
            "stdout": str(log),
            "stderr": str(errors or log),
        }
        return Forked(self.ask(order)["pid"], self)

    def ask(self, order: Mapping[str, Any]) -> Any:
        with self._alone:
            print(json.dumps(order), file=self._orders, flush=True)
            return json.loads(self._answers.readline())


_nurseries: dict[str, Nursery] = {}


def nursery() -> Nursery:
    """Return the nursery of this network: a forked process stays in the network of its parent."""
    network = os.readlink(OWN_NAMESPACE)
    if network not in _nurseries or not _nurseries[network].is_running():
        _nurseries[network] = Nursery()
    return _nurseries[network]


def run_butlers(
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path,
    stdin: str | bytes | None = None,
    timeout_s: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a person types it, and return what it printed."""
    with tempfile.TemporaryDirectory(prefix="bc-") as folder:
        given, out, errors = (Path(folder) / name for name in ("stdin", "stdout", "stderr"))
        given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin or b"")
        process = nursery().start(arguments, env, out, cwd, stdin=given, errors=errors)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, code, out.read_text(), errors.read_text())


@dataclass
class Forked:
    """A process that a test has started."""

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
            codes.pop(pid, None)  # of an earlier process with the same pid
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
    for number, flags in ((0, os.O_RDONLY), (1, _WRITE), (2, _WRITE)):
        file = os.open(order[("stdin", "stdout", "stderr")[number]], flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["butlers", *order["arguments"]]
    sys.modules["__main__"].__package__ = None  # a program named butlers, not a module


_WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def _import_all() -> None:
    import butlers

    for module in pkgutil.walk_packages(butlers.__path__, "butlers."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE_IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _run() -> int:
    from butlers.cli.main import main

    try:
        return main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  (a process says what ended it, as the interpreter would)
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    _import_all()
    gc.freeze()  # imported modules are no garbage, and their pages stay shared
    order = _obey(socket.socket(fileno=int(sys.argv[1])))
    if order is not None:
        _become(order)
        code = _run()
        # All of an exit except the destruction of every module, which takes most of a second.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
