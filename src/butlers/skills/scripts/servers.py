"""How a pack's own MCP server is started: from a verified copy, behind the same walls as a script, and with
what the pack declares."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from butlers.domain.errors import SkillInterpreterMissing
from butlers.domain.session import Access
from butlers.process.handle import held_by_stdin
from butlers.process.sandbox import sandboxed
from butlers.skills.scripts.runner import (
    Pack,
    ScriptRunner,
    declared_variables,
    environment,
    scratch_folder,
    verified_copy,
)
from butlers.skills.skill import PackMcpServer

# What the protocol library hands to every child of ours, and no pack has asked for.
_UNASKED = ("LOGNAME", "SHELL", "TERM", "USER")
_OUR_PYTHON = frozenset({"python", "python3"})


@dataclass(frozen=True, slots=True)
class ServerLaunch:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path


@contextmanager
def prepared_server(
    runner: ScriptRunner, pack: Pack, server: PackMcpServer, variables: Mapping[str, str]
) -> Iterator[ServerLaunch]:
    """What starts it; its files are gone after the block. SkillChanged if they are not as registered."""
    given, _missing = declared_variables(pack.skill, variables)
    with scratch_folder() as scratch:
        copy = verified_copy(pack, scratch)
        argv = (_program(server, runner.search_path), *server.args)
        walled = sandboxed(argv, copy, scratch, runner.home.resolve())
        env = environment(runner.search_path, scratch, Access.SEALED) | given
        yield ServerLaunch((*_bare(), *held_by_stdin(walled)), env, copy)


def _program(server: PackMcpServer, search_path: str) -> str:
    command = server.command or ""
    if command in _OUR_PYTHON:
        return sys.executable
    if "/" in command:  # a program that the pack brings
        return command
    found = shutil.which(command, path=search_path)
    if found is None:
        raise SkillInterpreterMissing(
            f"the server {server.name} needs {command}, and PATH has none",
            hint=f"install {command}",
        )
    return found


def _bare() -> tuple[str, ...]:
    env = shutil.which("env")
    return (env, *(word for name in _UNASKED for word in ("-u", name))) if env else ()
