"""Remove what a killed process left: folders whose lock is free, and the processes that use them.

Everything is removed through descriptors: a path may be replaced by a link between two calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

log = structlog.get_logger()

_PROCESSES = Path("/proc")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK = ".butlers"  # a folder without it may belong to another program


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a private folder and remove it afterwards. First remove those that killed processes left.

    It lies in ``parent``, by default in the system's folder for temporary files.
    """
    parent = Path(tempfile.gettempdir() if parent is None else parent).resolve()
    clear_unlocked_in(parent, prefix=prefix, marked=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = try_lock(folder)
    try:
        # Mark it only when it is locked: from here on a free lock means a dead owner.
        (folder / _MARK).touch()
        yield folder
    finally:
        if lock is not None:
            remove_locked(folder, lock)
            os.close(lock)


def clear_unlocked_in(base: Path, *below: str, prefix: str = "", marked: bool = False) -> None:
    """Remove the folders in ``base/below`` that no process holds, and kill the processes whose HOME is there.

    A link is never followed below ``base``. ``marked``: only this user's folders of ``temporary_folder``.
    """
    with contextlib.suppress(OSError), _opened_below(base, below) as parent:
        for name in sorted(os.listdir(parent)):
            if name.startswith(prefix):
                with contextlib.suppress(OSError), _opened(name, parent) as folder:
                    if _lock(folder) and (not marked or _is_marked(folder)):
                        _end_processes_in(base.joinpath(*below, name))
                        _empty(folder)
                        _remove_name(parent, name, folder)


def remove_locked(folder: Path, lock: int) -> None:
    """Remove the folder that the descriptor refers to, even if its path leads elsewhere now."""
    _empty(lock)
    with contextlib.suppress(OSError), _opened(folder.parent) as parent:
        _remove_name(parent, folder.name, lock)


def try_lock(folder: Path) -> int | None:
    """Lock the folder until the returned descriptor is closed; None if another process has it."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError:  # another process has just removed it
        return None
    if not _lock(descriptor):
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_below(base: Path, names: tuple[str, ...]) -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(_opened(base.resolve()))
        for name in names:
            descriptor = stack.enter_context(_opened(name, descriptor))
        yield descriptor


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_marked(folder: int) -> bool:
    mark = os.stat(_MARK, dir_fd=folder, follow_symlinks=False)
    return os.fstat(folder).st_uid == os.getuid() and stat.S_ISREG(mark.st_mode)


def _end_processes_in(folder: Path) -> None:
    for process in _processes_in(folder):
        log.warning("process of a dead session ended", pid=process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if is_folder:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _remove_name(parent: int, name: str, folder: int) -> None:
    """Remove the empty folder, if the name still belongs to it."""
    named = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if os.path.samestat(named, os.fstat(folder)):
        os.rmdir(name, dir_fd=parent)


def _processes_in(folder: Path) -> Iterator[int]:
    """Yield the processes whose HOME is in this folder, as far as the system shows them."""
    mark = f"HOME={folder}{os.sep}".encode()
    for entry in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            if any(variable.startswith(mark) for variable in environ.split(b"\0")):
                yield int(entry.name)
