"""Prepare a pack's MCP server: from a verified copy, in the same sandbox as a script."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from butlers.domain.errors import SkillInterpreterMissing
from butlers.process.handle import held_by_stdin
from butlers.skills.scripts.runner import ScriptRunner, declared_variables
from butlers.skills.scripts.space import ScriptSpace, scratch_folder, verified_copy
from butlers.skills.skill import Pack, PackMcpServer

# Variables that the MCP library passes to every child process.
_UNWANTED = ("LOGNAME", "SHELL", "TERM", "USER")
_ENV = "/usr/bin/env"
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
    """Yield the command that starts the server; its files are removed after the block.

    Raise SkillChanged if the pack differs from its registered hash.
    """
    given, _missing = declared_variables(pack.skill, variables)
    walled = runner.has_sandbox(pack)
    with scratch_folder(runner.home) as scratch:
        copy = verified_copy(pack, scratch)
        space = ScriptSpace(scratch, copy, copy.path, walled)
        space.make_folders()
        program = _program(server, runner.search_path)
        ports = None if pack.skill.network else ()
        box = space.sandbox(program, hidden=runner.hidden, ports=ports) if walled else None
        command = held_by_stdin((program, *server.args), box, space.pack)
        env = space.environment(runner.search_path) | given
        yield ServerLaunch((*_unset_unwanted(), *command), env, copy.path)


def _program(server: PackMcpServer, search_path: str) -> str:
    command = server.command or ""
    if command in _OUR_PYTHON:
        return sys.executable
    if "/" in command:  # a program in the pack
        return command
    found = shutil.which(command, path=search_path)
    if found is None:
        raise SkillInterpreterMissing(
            f"server {server.name} needs {command}, which is not on PATH",
            hint=f"install {command}",
        )
    return found


def _unset_unwanted() -> tuple[str, ...]:
    return (
        (_ENV, *(word for name in _UNWANTED for word in ("-u", name)))
        if os.path.exists(_ENV)
        else ()
    )
