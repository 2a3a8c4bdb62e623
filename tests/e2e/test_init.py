"""A new butler, from one command to one that answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import npm
from support.fake_model import ModelThread, Say
from support.fleet import Slot, butlers_environment, command, wait_for
from support.forked import run_butlers


class Shell:
    """A person's folder, with a home and a port of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bh-"))
        self.slot = Slot()
        self.process: subprocess.Popen[bytes] | None = None
        self.extra: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        return butlers_environment(self.folder / "h", self.slot.offset, **self.extra)

    def butlers(self, *arguments: str) -> str:
        done = run_butlers(*arguments, env=self.environment, cwd=self.folder)
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
                state: dict[str, Any] = httpx.get(
                    url, timeout=10, trust_env=False, verify=False
                ).json()
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


@pytest.mark.scenario("S000-35")
def test_a_new_butler_thinks_with_the_default_prompt(shell: Shell) -> None:
    with ModelThread() as thinking:
        shell.extra = {
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": thinking.model.url,
            "PATH": f"{npm.installed('clis')}:{os.environ['PATH']}",
        }
        shell.butlers("init", "mybutler", "--port", "40104")
        folder = shell.folder / "butlers" / "mybutler"
        state = shell.start("butlers/mybutler", 40104)
        assert (state["health"], state["runtime"]) == ("healthy", "claude-code")
        assert list((folder / "skills").iterdir()) == []

        thinking.model.script = [Say("At your service.")]
        assert shell.butlers("trigger", "mybutler", "who are you?") == "At your service.\n"
        (turn,) = thinking.model.turns
        assert "You are the mybutler butler." in json.dumps(turn.body["system"])
        assert "Traceback" not in shell.log


def test_a_new_butler_with_a_new_module_starts(shell: Shell) -> None:
    shell.butlers("init", "mybutler", "--port", "40104", "--dir", "roster")
    shell.butlers("module", "new", "weather", "--butler", "roster/mybutler")
    state = shell.start("roster/mybutler", 40104)
    assert state["health"] == "healthy"
    assert "weather" in json.dumps(state["modules"])
    assert "mybutler" in json.dumps(state["modules"])


def test_migrating_without_a_start_takes_modules_along(shell: Shell) -> None:
    shell.butlers("init", "mybutler", "--port", "40104")
    shell.butlers("module", "new", "weather", "--butler", "butlers/mybutler")
    revisions = shell.folder / "butlers" / "mybutler" / "modules" / "weather" / "migrations"
    revisions.mkdir()
    (revisions / "weather_001_days.py").write_text(
        'from alembic import op\nrevision = "weather_001"\ndown_revision = None\n'
        'def upgrade():\n    op.execute("CREATE TABLE days (day date)")\n'
    )
    applied = json.loads(shell.butlers("db", "migrate", "--json"))["mybutler"]
    assert applied[0] == "core_001"
    assert applied[-1] == "weather_001"
    assert json.loads(shell.butlers("db", "migrate", "--json"))["mybutler"] == []
