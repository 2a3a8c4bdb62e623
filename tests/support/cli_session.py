"""The surroundings of one CLI under test: a butler, a model, a session folder, and our child processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from butlers.domain.clock import uuid7
from butlers.domain.session import Access, SessionRequest, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import Grants, McpServer, Terms, Workspace
from butlers.runtimes.cli import CliRuntime
from support.clis import Cli
from support.fake_model import FakeModel
from support.in_process import InProcessButler
from support.waiting import until

PATH = "/usr/local/bin:/usr/bin:/bin"
SYSTEM_PROMPT = "You are the butler of a test, and you say AMARANTH when asked for the word."


@dataclass
class CliSession:
    tester: InProcessButler
    model: FakeModel
    cli: Cli
    adapter: CliRuntime
    private: Path
    limits: TimeLimits = field(default_factory=lambda: TimeLimits(60, 60, 120))
    grants: Grants = field(default_factory=Grants)
    args: tuple[str, ...] = ()
    system_prompt: str = SYSTEM_PROMPT
    url: str | None = None  # another than the butler's own
    token: str | None = None  # another than that of a live session
    tools: frozenset[str] | None = None  # those that the session is given; None: all
    more: dict[str, str] = field(default_factory=dict)  # environment of the session

    @property
    def cwd(self) -> Path:
        return self.tester.directory

    @property
    def terms(self) -> Terms:
        workspace = Workspace(self.cwd, self.private)
        return Terms(workspace, self.grants, self.limits, self.cli.model, self.args)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, **self.cli.environment(self.model.url), **self.more}

    def starts(self, access: Access) -> bool:
        """Return whether the runtime starts sessions of this access level."""
        return self.adapter.holds(access)

    async def invoke(self, prompt: str = "Do it.") -> SessionResult:
        """Run one session with its own token, as the spawner does."""
        asked = SessionRequest(uuid7(), prompt, "test", tools=self.tools)
        with self.tester.butler.guard.admit(asked) as token:
            server = McpServer(self.url or self.tester.butler.url, self.token or token)
            return await self.adapter.invoke(
                prompt, self.system_prompt, {"tester": server}, self.environment, self.terms
            )

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[asyncio.Task[SessionResult]]:
        """A session that the model keeps waiting; whoever asks for it decides how it ends."""
        task = asyncio.create_task(self.invoke())
        try:
            await until("the model to be asked", lambda: self.model.hanging or task.done() or None)
            assert not task.done(), task.result()
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def processes(self) -> list[psutil.Process]:
        """All that lives below this test because of the session, whatever group it is in."""
        return [one for one in psutil.Process().children(recursive=True) if _of(one, self.private)]

    def program(self) -> psutil.Process:
        """The CLI itself: the first whose parent is not of the session."""
        found = self.processes()
        known = {one.pid for one in found}
        (first,) = [one for one in found if one.ppid() not in known]
        return first


def _of(process: psutil.Process, private: Path) -> bool:
    try:
        return process.environ().get("HOME", "").startswith(str(private))
    except psutil.Error:
        return False
