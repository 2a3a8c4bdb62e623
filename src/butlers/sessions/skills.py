"""The skills of a running butler: with its secrets, in its sessions' prompts and folders, run for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from butlers.config.butler import ButlerConfig
from butlers.domain import tasks
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import ButlersError, NotAllowed, SkillError, SkillScriptError
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, SessionRequest
from butlers.process.runner import ScriptLimits
from butlers.sessions.pack_servers import PackServer
from butlers.sessions.skill_maker import SkillMaker
from butlers.sessions.system_prompt import skills_text
from butlers.sessions.workspace import Credentials
from butlers.skills.registry.built_in import tools_of
from butlers.skills.scripts.answer import ScriptAnswer
from butlers.skills.scripts.runner import Arguments, CallbackAccess, ScriptRequest, ScriptRunner
from butlers.skills.skill_set import ButlerSkill, ButlerSkillSet, unchanged

log = structlog.get_logger()

MAX_OUTPUT = 256 * 1024  # bytes of a script's answer; a model reads all of it

# A second token for a caller, which opens just these tools for so many seconds.
Lend = Callable[[Caller, RequestContext | None, frozenset[str], float], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Wish:
    """One run of a script, as somebody asks for it."""

    skill: str
    script: str
    arguments: Arguments
    caller: Caller
    request: RequestContext | None = None
    timeout_s: float = 60.0


@dataclass(slots=True)
class ButlerSkills:
    config: ButlerConfig
    shelf: ButlerSkillSet
    maker: SkillMaker
    credentials: Credentials
    runner: ScriptRunner
    lend: Lend
    url: Callable[[], str]
    servers: tuple[PackServer, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # variables, by pack
    _changed: dict[str, str] = field(default_factory=dict)  # since the start, by pack
    _access: dict[UUID, Access] = field(default_factory=dict)  # of sessions that run
    _scripts: dict[UUID | None, set[asyncio.Task[ScriptAnswer]]] = field(default_factory=dict)

    async def open(self) -> None:
        """Say what is missing, and learn the tools of the packs' servers."""
        for warning in self.shelf.loading.warnings:
            log.warning("skill warning", warning=warning)
        for failed in self.shelf.loading.failed:
            log.error("skill failed", skill=failed.wanted, error=failed.error.message)
        found = {pack.name: await self._missing(pack) for pack in self.shelf.packs()}
        self.missing = {name: names for name, names in found.items() if names}
        for name, names in self.missing.items():
            log.warning("skill has no value for a variable", skill=name, missing=list(names))
        self.servers = tuple(
            PackServer(pack, server, self.runner, self.variables)
            for pack in self.shelf.packs()
            if not pack.draft
            for server in pack.skill.mcp_servers
        )
        await asyncio.gather(*(server.discover() for server in self.servers))

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))

    # -- how they are ----------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        return not (
            self.shelf.loading.failed
            or self._changed
            or any(server.error for server in self.servers)
        )

    def states(self) -> list[dict[str, Any]]:
        """Each pack that the configuration names: whether it works, and what it lacks."""
        failed = [
            {"skill": failed.wanted, "state": "failed", "error_code": failed.error.code}
            for failed in self.shelf.loading.failed
        ]
        return [*(self._state(pack) for pack in self.shelf.packs()), *failed]

    def _state(self, pack: ButlerSkill) -> dict[str, Any]:
        servers = [server for server in self.servers if server.shelved.name == pack.name]
        broken = [server.server.name for server in servers if server.error]
        changed = pack.name in self._changed
        return {
            "skill": pack.skill.label,
            "state": "failed" if changed or broken else "draft" if pack.draft else "loaded",
            **({"error_code": "skill_changed"} if changed else {}),
            **({"failed_servers": broken} if broken else {}),
            **({"missing": list(self.missing[pack.name])} if pack.name in self.missing else {}),
        }

    # -- in a session ----------------------------------------------------------------------------

    async def prompt_text(self) -> str:
        """What the packs add to the system prompt. One that has changed adds nothing, and is told; nor does
        a draft, which nobody but a model has seen yet."""
        packs = [pack for pack in self.shelf.packs() if not pack.draft]
        if not packs:
            return ""
        good, changed = await asyncio.to_thread(unchanged, packs)
        self._note(changed)
        servers = [
            (server.server.name, [tool.name for tool in server.tools])
            for server in self.servers
            if server.tools and server.shelved.name not in self._changed
        ]
        disclosure = self.config.skills.disclosure
        return await asyncio.to_thread(skills_text, good, disclosure, servers)

    def _note(self, changed: Sequence[tuple[ButlerSkill, SkillError]]) -> None:
        now = {shelved.name: error.message for shelved, error in changed}
        for name, message in now.items():
            if name not in self._changed:
                log.error("skill changed since it was registered", skill=name, error=message)
        self._changed = now

    async def mount(self, home: Path) -> tuple[Path, ...]:
        """Put them where a CLI finds them by itself. A session goes on without, and the log says why."""
        try:
            return await asyncio.to_thread(self.shelf.mount, home)
        except SkillError as error:
            log.warning("skills not mounted", error=error.message)
            return ()

    @asynccontextmanager
    async def attending(self, session: SessionRequest, access: Access) -> AsyncIterator[None]:
        """The servers that this session may call run until the last such session has ended."""
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

    async def run(self, wish: Wish) -> ScriptAnswer:
        shelved = await asyncio.to_thread(self.shelf.find, wish.skill)
        access = self._level(wish.caller)
        if shelved.draft and wish.caller.kind is CallerKind.SESSION and access is not Access.FULL:
            raise NotAllowed(
                f"the scripts of {shelved.skill.label} are not run before a person has approved it",
                hint=f"`butlers skills approve {shelved.skill.label}`",
            )
        with self._door(shelved, wish) as door:
            call = ScriptRequest(
                wish.script,
                wish.arguments,
                self.config.directory,
                await self.variables(shelved),
                access,
                ScriptLimits(seconds=wish.timeout_s, output=MAX_OUTPUT),
                door,
            )
            return await self._with_its_session(self.runner.run(shelved.pack, call), wish.caller)

    async def _with_its_session(
        self, running: Coroutine[Any, Any, ScriptAnswer], caller: Caller
    ) -> ScriptAnswer:
        """What a session has started ends with it, whether or not anybody still waits for the answer."""
        task = asyncio.create_task(running)
        scripts = self._scripts.setdefault(caller.session_id, set())
        scripts.add(task)
        try:
            await asyncio.wait({task})
        finally:
            scripts.discard(task)
            await tasks.end(task)
        if task.cancelled():
            raise SkillScriptError("the session that ran it has ended")
        return task.result()

    async def _end_scripts(self, session_id: UUID) -> None:
        await tasks.end(*self._scripts.pop(session_id, ()))

    def _level(self, caller: Caller) -> Access:
        if caller.kind is CallerKind.OWNER:
            return Access.WORKSPACE
        known = self._access.get(caller.session_id) if caller.session_id else None
        return known or Access.SEALED

    @contextmanager
    def _door(self, shelved: ButlerSkill, wish: Wish) -> Iterator[CallbackAccess | None]:
        """For packs that come with us: a way back to the butler, while the script runs."""
        tools = tools_of(shelved.skill) if shelved.pack.digest else frozenset[str]()
        if not tools:
            yield None
            return
        with self.lend(wish.caller, wish.request, tools, wish.timeout_s) as token:
            yield CallbackAccess(self.url(), token)

    async def variables(self, shelved: ButlerSkill) -> dict[str, str]:
        """The secrets that it declares. A draft has none: nobody but a model has seen it yet."""
        if shelved.draft:
            return {}
        env = self.config.env
        told = {*env.required, *env.optional}  # others of our own environment are nobody's
        values = {
            name: await self._value(name, name if name in told else None)
            for name in shelved.skill.env_vars
        }
        return {name: value for name, value in values.items() if value}

    async def _value(self, name: str, env: str | None) -> str | None:
        try:
            return await self.credentials.resolve(name, env=env)
        except ButlersError as error:
            log.warning("secret can not be read", name=name, error=error.message)
            return None

    async def _missing(self, shelved: ButlerSkill) -> tuple[str, ...]:
        given = await self.variables(shelved)
        return tuple(name for name in shelved.skill.env_vars if name not in given)
