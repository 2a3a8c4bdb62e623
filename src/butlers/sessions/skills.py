"""Skills of a running butler: their part of the prompt, their mounts, their servers, and script runs."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from butlers.broker.grants import Credentials
from butlers.config.butler import ButlerConfig
from butlers.domain import tasks
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import ButlersError, NotAllowed, SkillError, SkillScriptError
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, SessionRequest
from butlers.process.runner import ScriptLimits
from butlers.sessions.pack_servers import PackServer
from butlers.sessions.skill_maker import SkillMaker
from butlers.sessions.system_prompt import skills_text
from butlers.skills.registry.built_in import butler_tools_of
from butlers.skills.registry.own_skills import agreed_digest
from butlers.skills.scripts.answer import ScriptAnswer
from butlers.skills.scripts.runner import Arguments, CallbackAccess, ScriptRun, ScriptRunner
from butlers.skills.scripts.system_packages import missing_packages
from butlers.skills.skill_set import ButlerSkill, ButlerSkillSet, SkillOrigin, split_changed

log = structlog.get_logger()

MAX_OUTPUT = 256 * 1024  # bytes of a script's output: a model reads all of it

# Lends a caller a second token that opens only these tools, for so many seconds.
Lend = Callable[[Caller, RequestContext | None, frozenset[str], float], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A request to run a script."""

    skill: str
    script: str
    arguments: Arguments
    caller: Caller
    request: RequestContext | None = None
    timeout_s: float = 60.0


@dataclass(slots=True)
class ButlerSkills:
    config: ButlerConfig
    skill_set: ButlerSkillSet
    maker: SkillMaker
    credentials: Credentials
    runner: ScriptRunner
    lend: Lend
    url: Callable[[], str]
    servers: tuple[PackServer, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # variables, by pack
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # system packages, by pack
    diagnostics: tuple[Diagnostic, ...] = ()  # of the butler's skills folder, at start
    _changed: dict[str, str] = field(default_factory=dict)  # error since the start, by pack
    _access: dict[UUID, Access] = field(default_factory=dict)  # of running sessions
    _scripts: dict[UUID | None, set[asyncio.Task[ScriptAnswer]]] = field(default_factory=dict)

    async def open(self) -> None:
        """Log problems of the packs, and list the tools of their servers."""
        for warning in self.skill_set.load_result.warnings:
            log.warning("skill warning", warning=warning)
        for failed in self.skill_set.load_result.failed:
            log.error("skill failed", skill=failed.wanted, error=failed.error.message)
        found = {pack.name: await self._missing(pack) for pack in self.skill_set.packs()}
        self.missing = {name: names for name, names in found.items() if names}
        for name, names in self.missing.items():
            log.warning("skill has no value for a variable", skill=name, missing=list(names))
        self._look_for_packages()
        self.servers = tuple(
            PackServer(pack, server, self.runner, self.variables)
            for pack in self.skill_set.packs()
            if not pack.draft
            for server in pack.skill.mcp_servers
        )
        await asyncio.gather(*(server.discover() for server in self.servers))

    def _look_for_packages(self) -> None:
        wanted = {pack.name: pack.skill.system_packages for pack in self.skill_set.packs()}
        found = {
            name: missing_packages(names, self.runner.search_path) for name, names in wanted.items()
        }
        self.lacking = {name: names for name, names in found.items() if names}
        for name, names in self.lacking.items():
            log.warning("skill needs system packages", skill=name, missing=list(names))

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))

    # -- health ----------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        return not (
            self.skill_set.load_result.failed
            or self._changed
            or any(server.error for server in self.servers)
        )

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each configured pack, with its error and missing variables."""
        failed = [
            {"skill": failed.wanted, "state": "failed", "error_code": failed.error.code}
            for failed in self.skill_set.load_result.failed
        ]
        return [*(self._state(pack) for pack in self.skill_set.packs()), *failed]

    def _state(self, pack: ButlerSkill) -> dict[str, Any]:
        servers = [server for server in self.servers if server.entry.name == pack.name]
        broken = [server.server.name for server in servers if server.error]
        changed = pack.name in self._changed
        return {
            "skill": pack.skill.label,
            "state": "failed" if changed or broken else "draft" if pack.draft else "loaded",
            **({"error_code": "skill_changed"} if changed else {}),
            **({"failed_servers": broken} if broken else {}),
            **({"missing": list(self.missing[pack.name])} if pack.name in self.missing else {}),
            **(
                {"missing_packages": list(self.lacking[pack.name])}
                if pack.name in self.lacking
                else {}
            ),
        }

    # -- in a session ----------------------------------------------------------------------------

    async def prompt_text(self) -> str:
        """Return the packs' part of the system prompt.

        A changed pack is left out and logged. A draft is left out because no person has seen it yet.
        """
        packs = [pack for pack in self.skill_set.packs() if not pack.draft]
        if not packs:
            return ""
        good, changed = await asyncio.to_thread(split_changed, packs)
        self._log_changed(changed)
        servers = [
            (server.server.name, [tool.name for tool in server.tools])
            for server in self.servers
            if server.tools and server.entry.name not in self._changed
        ]
        disclosure = self.config.skills.disclosure
        return await asyncio.to_thread(skills_text, good, disclosure, servers)

    def _log_changed(self, changed: Sequence[tuple[ButlerSkill, SkillError]]) -> None:
        now = {entry.name: error.message for entry, error in changed}
        for name, message in now.items():
            if name not in self._changed:
                log.error("skill changed since it was registered", skill=name, error=message)
        self._changed = now

    async def mount(self, home: Path) -> tuple[Path, ...]:
        """Copy the skills to where the CLI loads them. If that fails, log it and go on without them."""
        try:
            return await asyncio.to_thread(self.skill_set.mount, home)
        except SkillError as error:
            log.warning("skills not mounted", error=error.message)
            return ()

    @asynccontextmanager
    async def for_session(self, session: SessionRequest, access: Access) -> AsyncIterator[None]:
        """Run the servers that this session may call, until the last such session has ended."""
        self._access[session.session_id] = access
        async with AsyncExitStack() as stack:
            stack.callback(self._access.pop, session.session_id, None)
            stack.push_async_callback(self._end_scripts, session.session_id)
            for server in self.servers:
                if any(
                    session.tools is None or tool.name in session.tools for tool in server.tools
                ):
                    await stack.enter_async_context(server.used())
                    starting = asyncio.create_task(server.start())
                    stack.push_async_callback(tasks.end, starting)
            yield

    # -- scripts ---------------------------------------------------------------------------------

    async def run(self, request: ScriptRequest) -> ScriptAnswer:
        entry = await asyncio.to_thread(self.skill_set.find, request.skill)
        access = self._level(request.caller)
        if entry.draft and request.caller.kind is CallerKind.SESSION and access is not Access.FULL:
            raise NotAllowed(
                f"scripts of {entry.skill.label} cannot run before a person approves it",
                hint=f"run `butlers skills approve {shlex.quote(entry.skill.label)}`",
            )
        with self._callback_access(entry, request) as callback:
            call = ScriptRun(
                request.script,
                request.arguments,
                self.config.directory,
                await self.variables(entry),
                access,
                ScriptLimits(seconds=request.timeout_s, output=MAX_OUTPUT),
                callback,
                await asyncio.to_thread(self._agreed, entry),
            )
            return await self._until_session_ends(self.runner.run(entry.pack, call), request.caller)

    def _agreed(self, entry: ButlerSkill) -> str | None:
        """Return the hash of the skill that the owner has agreed to."""
        if entry.draft:
            return None
        if entry.origin is not SkillOrigin.OWN:
            return entry.pack.digest
        home = self.skill_set.registry.home
        return agreed_digest(home, self.config.name, entry.pack.folder.name)

    async def _until_session_ends(
        self, running: Coroutine[Any, Any, ScriptAnswer], caller: Caller
    ) -> ScriptAnswer:
        """End the script with its session, even if no caller waits for the answer."""
        task = asyncio.create_task(running)
        scripts = self._scripts.setdefault(caller.session_id, set())
        scripts.add(task)
        try:
            await asyncio.wait({task})
        finally:
            scripts.discard(task)
            await tasks.end(task)
        if task.cancelled():
            raise SkillScriptError("the session that ran the script has ended")
        return task.result()

    async def _end_scripts(self, session_id: UUID) -> None:
        await tasks.end(*self._scripts.pop(session_id, ()))

    def _level(self, caller: Caller) -> Access:
        if caller.kind is CallerKind.OWNER:
            return Access.WORKSPACE
        known = self._access.get(caller.session_id) if caller.session_id else None
        return known or Access.SEALED

    @contextmanager
    def _callback_access(
        self, entry: ButlerSkill, request: ScriptRequest
    ) -> Iterator[CallbackAccess | None]:
        """Give a script of a built-in pack access to the butler's tools while it runs."""
        tools = butler_tools_of(entry.skill) if entry.pack.digest else frozenset[str]()
        if not tools:
            yield None
            return
        with self.lend(request.caller, request.request, tools, request.timeout_s) as token:
            yield CallbackAccess(self.url(), token)

    async def variables(self, entry: ButlerSkill) -> dict[str, str]:
        """Return the values of its declared variables. A draft gets none: no person has seen it yet."""
        if entry.draft:
            return {}
        env = self.config.env
        declared = {*env.required, *env.optional}  # only these are read from our environment
        values = {
            name: await self._value(name, name if name in declared else None)
            for name in entry.skill.env_vars
        }
        return {name: value for name, value in values.items() if value}

    async def _value(self, name: str, env: str | None) -> str | None:
        try:
            return await self.credentials.resolve(name, env=env)
        except ButlersError as error:
            log.warning("secret cannot be read", name=name, error=error.message)
            return None

    async def _missing(self, entry: ButlerSkill) -> tuple[str, ...]:
        given = await self.variables(entry)
        return tuple(name for name in entry.skill.env_vars if name not in given)
