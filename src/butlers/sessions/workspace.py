"""The equipment of a session: a private folder, grants for its access level, and an environment."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from butlers.broker.grants import Credentials
from butlers.config.butler import ButlerConfig
from butlers.config.files import make_private_folder
from butlers.domain.session import Access, SessionRequest
from butlers.domain.trace import traceparent_environment
from butlers.process.leftovers import clear_unlocked_in, remove_locked, try_lock
from butlers.runtimes.base import MCP_SERVERS, NETWORK, Grants, McpServer, Workspace
from butlers.runtimes.cli import describe_servers
from butlers.runtimes.registry import cli_runtimes
from butlers.sessions.broker_access import BrokerAccess
from butlers.skills.skill_set import CUSTOM
from butlers.skills.skill_set import FOLDER as SKILLS

FOLDER = "sessions"
NOTES = "AGENTS.md"
_RUNNERS = {".py": ("python", "python3"), ".sh": ("bash", "sh")}
CORE_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")  # always given, unless the session is confined
PATH = "/usr/local/bin:/usr/bin:/bin"  # if the host sets none


class Workspaces:
    """Private folders, with HOME and TMPDIR, for the sessions of one daemon.

    They lie in a folder that the daemon locks. The next start removes folders whose lock is free, because
    their daemon was killed, and kills the processes whose HOME is in one.
    """

    def __init__(self, home: Path, butler: str, directory: Path) -> None:
        self._home, self._butler = home, butler
        self._own = home / FOLDER / butler / secrets.token_hex(8)
        self._directory = directory
        self._lock: int | None = None
        self._remover = ThreadPoolExecutor(1, thread_name_prefix="workspaces")

    def take(self) -> None:
        """Remove what killed daemons of this butler left, and create our own folder."""
        clear_unlocked_in(self._home, FOLDER, self._butler)
        make_private_folder(self._own)
        self._lock = try_lock(self._own)

    def release(self) -> None:
        self._remover.shutdown(cancel_futures=True)
        if self._lock is not None:
            remove_locked(self._own, self._lock)
            os.close(self._lock)

    @contextmanager
    def open(self, session_id: UUID) -> Iterator[Workspace]:
        private = self._own / str(session_id)
        make_private_folder(private)
        try:
            yield Workspace(self._directory, private, (self._home,))
        finally:
            self._remove(private)

    def _remove(self, private: Path) -> None:
        """Rename it at once and remove it in a thread: that takes longer than a tool call."""
        gone = private.with_name(f"{private.name}.gone")
        with contextlib.suppress(FileNotFoundError):
            private.rename(gone)
            self._remover.submit(shutil.rmtree, gone, ignore_errors=True)


def level_of(session: SessionRequest, config: ButlerConfig) -> Access:
    """Return the access level for the session's trigger. A person's own trigger may do the most."""
    runtime, source = config.runtime, session.trigger_source
    if session.outside:
        return Access.SEALED
    if source == "trigger":
        return Access(runtime.access)
    if source == "route" or (source.startswith("schedule:") and session.request is not None):
        return Access(runtime.routed_access)  # a task has the access of the message that made it
    return Access(runtime.schedule_access) if source.startswith("schedule:") else Access.SEALED


def grants_for(access: Access, directory: Path, skills: tuple[Path, ...] = ()) -> Grants:
    """Spell out an access level: no patterns, one entry per file and command.

    ``skills`` are the folders where skills are mounted for this session.
    """
    if access is not Access.WORKSPACE:
        return Grants(access)
    return Grants(
        access,
        readable=(directory, *skills),
        writable=(directory / NOTES,),
        commands=tuple(_commands(directory)),
    )


def _commands(directory: Path) -> Iterator[str]:
    yield from (f"ls {SKILLS}", f"ls {SKILLS}/")
    skills = directory / SKILLS
    for skill in sorted(skills.iterdir()) if skills.is_dir() else ():
        # Drafts that sessions made are run by the butler alone until a person approves them.
        if skill.is_dir() and not skill.is_symlink() and skill.name != CUSTOM:
            yield f"ls {SKILLS}/{skill.name}"
            for file in sorted(skill.rglob("*")):
                yield from _run_commands(file, directory)


def _run_commands(file: Path, directory: Path) -> Iterator[str]:
    if file.is_symlink() or not file.is_file():
        return
    path = file.relative_to(directory).as_posix()
    if not path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return  # a shell may read other characters in its own way
    for runner in _RUNNERS.get(file.suffix, ()):
        yield f"{runner} {path}"
    if os.access(file, os.X_OK):
        yield f"./{path}"


class SessionEnvironment:
    """The environment of a session's process: PATH and what the configuration declares.

    A sealed session that reads text from outside gets only what its CLI needs, so there is nothing else
    that it could be talked into revealing.
    """

    def __init__(
        self,
        config: ButlerConfig,
        credentials: Credentials,
        environ: Mapping[str, str],
        module_credentials: Iterable[tuple[str, str]] = (),
        broker: BrokerAccess | None = None,
    ) -> None:
        self._credentials = credentials
        self._broker = broker
        self._path = environ.get("PATH") or PATH
        declared = (*config.env.required, *config.env.optional)
        # Variable, and its name in the credential store.
        self._declared = {name: name for name in declared} | dict(module_credentials)

    async def build(
        self, runtime: str, servers: Mapping[str, McpServer], *, access: Access, outside: bool
    ) -> dict[str, str]:
        """``outside``: the session reads text that others wrote."""
        variables = await self.variables(runtime, access=access, outside=outside)
        return {
            **variables,
            MCP_SERVERS: json.dumps(describe_servers(servers)),
            **traceparent_environment(),
        }

    async def variables(self, runtime: str, *, access: Access, outside: bool) -> dict[str, str]:
        """Return the variables that are the same for each such session.

        With a broker, a placeholder stands for the session's token.
        """
        variables = {"PATH": self._path}
        for variable, name in self._granted(runtime, access, outside=outside).items():
            value = await self._credentials.resolve(name, env=variable)
            if value:
                variables[variable] = value
        return variables if self._broker is None else self._broker.environment(variables)

    def _granted(self, runtime: str, access: Access, *, outside: bool) -> dict[str, str]:
        cli = cli_runtimes().get(runtime)
        own = dict.fromkeys(cli.credentials) if cli else {}
        if outside and access is Access.SEALED:
            settings = (*cli.settings, *NETWORK) if cli else ()
            declared = {name: self._declared[name] for name in settings if name in self._declared}
        else:
            declared = self._declared
            own |= dict.fromkeys(CORE_KEYS)
        return {name: name for name in own} | declared
