"""Prepare a pack's MCP server: from a verified copy, in the same sandbox as a script."""

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
    ScriptRunner,
    base_environment,
    declared_variables,
    scratch_folder,
    verified_copy,
)
from butlers.skills.skill import Pack, PackMcpServer

# Variables that the MCP library passes to every child process.
_UNWANTED = ("LOGNAME", "SHELL", "TERM", "USER")
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
    with scratch_folder() as scratch:
        copy = verified_copy(pack, scratch)
        argv = (_program(server, runner.search_path), *server.args)
        command = sandboxed(argv, copy, scratch, runner.home.resolve())
        env = base_environment(runner.search_path, scratch, Access.SEALED) | given
        yield ServerLaunch((*_unset_unwanted(), *held_by_stdin(command)), env, copy)


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
    env = shutil.which("env")
    return (env, *(word for name in _UNWANTED for word in ("-u", name))) if env else ()
