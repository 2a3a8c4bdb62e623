"""The sandbox of a session's CLI, for each access level.

``sealed``: the session's private folder and the CLI's installation; the butler's folder appears empty.
``workspace``: also the butler's folder, read-only but for the granted files, and our Python, for the gate and
for scripts. The CLIs replace a file that they change, which needs a writable folder around it; so the folder
is one of the session's own, with the butler's files mounted into it. The granted files are copies, which
``publish`` writes back.
``full``: every file of the account, but not our home; and the whole network.

Below ``full``, the CLI reaches its butler and the key broker on this machine, and nothing else. A CLI that
has no broker needs the whole network to reach its model.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from butlers.config.files import replace_file
from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.process.sandbox import (
    Mount,
    ResourceLimits,
    Sandbox,
    loopback_ports,
    program_mounts,
    python_mounts,
    sandbox_problem,
)
from butlers.runtimes.base import AUTHORITIES, Invocation

LIMITS = ResourceLimits(processes=1024, memory=8 << 30, file_bytes=1 << 30, temporary=512 << 20)
MAX_PUBLISHED = 4 << 20  # bytes of a file that a session may write
READABLE = 0o644
_FIRST_LINE = 256  # bytes in which a script names its interpreter


def contain(command: ProcessCommand, call: Invocation, base_url: str) -> ProcessCommand:
    """Return the command with its sandbox; unchanged where the system has none.

    ``base_url``: the variable with the address of the model's API.
    """
    if sandbox_problem() is not None:
        return command
    access = call.terms.grants.access
    if access is Access.WORKSPACE:
        command = replace(command, env=_with_our_python(command))
    return replace(command, sandbox=_sandbox(command, call, base_url))


def _sandbox(command: ProcessCommand, call: Invocation, base_url: str) -> Sandbox:
    workspace, access = call.terms.workspace, call.terms.grants.access
    whole = access is Access.FULL
    return Sandbox(
        mounts=(
            *_program(command),
            *_certificates(command),
            *_granted(call),
            Mount(workspace.private, writable=True),
        ),
        folders=(str(workspace.cwd.resolve()),) if access is Access.SEALED else (),
        hidden=workspace.hidden,
        ports=None if whole else _ports(command, call, base_url),
        limits=LIMITS,
        whole_machine=whole,
    )


def _program(command: ProcessCommand) -> Iterator[Mount]:
    """Yield the mounts of the CLI and of the interpreter that it names."""
    program = Path(command.argv[0])
    yield from program_mounts(program)
    with program.open("rb") as file:
        first = file.read(_FIRST_LINE).partition(b"\n")[0]
    if first.startswith(b"#!") and b"node" in first:
        node = shutil.which("node", path=command.env.get("PATH"))
        if node is not None:
            yield from program_mounts(Path(node))


def _certificates(command: ProcessCommand) -> Iterator[Mount]:
    """Yield the mounts of the certificate files that the environment names."""
    for name in AUTHORITIES:
        file = Path(command.env.get(name, ""))
        if file.is_absolute() and file.is_file():
            yield Mount(file, file)


def _granted(call: Invocation) -> Iterator[Mount]:
    grants, workspace = call.terms.grants, call.terms.workspace
    if grants.access is Access.FULL:
        yield Mount(workspace.cwd, writable=True)
    elif grants.access is Access.WORKSPACE:
        yield from python_mounts()
        yield from _staged_mounts(call)
        yield from (Mount(folder) for folder in grants.readable if folder != workspace.cwd)


def _staged_mounts(call: Invocation) -> Iterator[Mount]:
    """Make the session's own folder in place of the butler's, and yield the mounts into it."""
    real = call.terms.workspace.cwd.resolve()
    staged = _staged(call)
    staged.mkdir(mode=0o700, exist_ok=True)
    yield Mount(staged, real, writable=True)
    copied = {file.name for file in _staged_files(call)}
    _originals(call).mkdir(mode=0o700, exist_ok=True)
    for file in _staged_files(call):
        if file.is_file():
            shutil.copyfile(file, staged / file.name)
            shutil.copyfile(file, _originals(call) / file.name)
    for entry in os.scandir(real):
        if entry.is_symlink():
            yield Mount(Path(os.readlink(entry.path)), Path(entry.path), link=True)
        elif entry.name not in copied:
            yield Mount(Path(entry.path))


def publish(call: Invocation) -> None:
    """Write the granted files that the session changed to the butler's folder.

    Lines that it added at the end go behind what another session wrote meanwhile.
    """
    if call.terms.grants.access is not Access.WORKSPACE:
        return
    for file in _staged_files(call):
        written = _read(_staged(call) / file.name)
        original = _read(_originals(call) / file.name) or b""
        if written is not None and written != original:
            there = _read(file)
            if there is not None and there != original and written.startswith(original):
                written = there + written[len(original) :]
            mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else READABLE
            replace_file(file, written, mode)


def _staged(call: Invocation) -> Path:
    return call.terms.workspace.private / "workspace"


def _originals(call: Invocation) -> Path:
    """Return the folder with the granted files as they were when the session began."""
    return call.terms.workspace.private / "originals"


def _staged_files(call: Invocation) -> list[Path]:
    """Return the granted files of the butler's folder itself. A link's target was not granted."""
    cwd = call.terms.workspace.cwd.resolve()
    files = call.terms.grants.writable
    return [file for file in files if file.parent.resolve() == cwd and not file.is_symlink()]


def _read(file: Path) -> bytes | None:
    """Return the content of a regular file; None for a link, a pipe, or a file that is too large."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        regular = stat.S_ISREG(found.st_mode) and found.st_size <= MAX_PUBLISHED
        return opened.read() if regular else None


def _ports(command: ProcessCommand, call: Invocation, base_url: str) -> tuple[int, ...] | None:
    model = command.env.get(base_url)
    if not model:
        return None
    return loopback_ports(model, *(server.url for server in call.mcp_servers.values()))


def _with_our_python(command: ProcessCommand) -> dict[str, str]:
    """Add our Python to the end of PATH: the one that the machine's PATH names may be hidden."""
    path = command.env.get("PATH", "")
    return {**command.env, "PATH": f"{path}:{Path(sys.prefix) / 'bin'}"}
