"""A new butler, from one command to one that answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.fleet import Slot, butlers_environment, command, wait_for


class Shell:
    """A person's folder, with a home and a port of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bh-"))
        self.slot = Slot()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return butlers_environment(self.folder / "h", self.slot.offset)

    def butlers(self, *arguments: str) -> str:
        done = subprocess.run(
            command(*arguments),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, folder: str, port: int) -> dict[str, Any]:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command("run", "--config", folder),
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

        def healthy() -> dict[str, Any] | None:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            try:
                url = f"http://127.0.0.1:{port + self.slot.offset}/health"
                state: dict[str, Any] = httpx.get(url, timeout=10, trust_env=False).json()
            except httpx.HTTPError:
                return None
            return state if state["phase"] == "ready" else None

        return wait_for("the new butler to be ready", healthy)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.slot.release()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def shell() -> Iterator[Shell]:
    opened = Shell()
    yield opened
    opened.close()


def test_a_new_butler_starts_at_once(shell: Shell) -> None:
    shell.butlers("init", "mybutler", "--port", "40104")
    state = shell.start("butlers/mybutler", 40104)
    assert (state["name"], state["health"], state["diagnostics"]) == ("mybutler", "healthy", [])
    assert json.loads(shell.butlers("tool", "mybutler", "status"))["name"] == "mybutler"
    errors = [line for line in shell.log.splitlines() if '"level": "error"' in line]
    assert errors == []
    assert shell.process is not None
    shell.process.terminate()
    assert shell.process.wait(60) == 0
    assert "Traceback" not in shell.log


def test_a_new_butler_with_a_new_module_starts(shell: Shell) -> None:
    shell.butlers("init", "mybutler", "--port", "40104", "--dir", "roster")
    shell.butlers("module", "new", "weather", "--butler", "roster/mybutler")
    state = shell.start("roster/mybutler", 40104)
    assert state["health"] == "healthy"
    assert "weather" in json.dumps(state["modules"])
    assert "mybutler" in json.dumps(state["modules"])
