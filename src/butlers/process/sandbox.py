"""The sandbox of a child process: the files, ports and resources that it may use.

A sandbox shows only what it lists. Everything else of the machine is absent: other homes, our keys, other
processes, other networks. The system's programs are read-only, ``/tmp`` and the devices are its own, it has
no capabilities and cannot get any, and a filter refuses the system calls that it does not need. The kernel
ends everything in it when its first process exits.

The plan made here is carried out by ``namespaces``, in the reaper's child.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from butlers.process import namespaces
from butlers.process.seccomp import filter_program

_NOBODY = 65534
_LOOPBACK = ("127.0.0.1", "localhost")
_PROBE_S = 20
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
# Of /etc, only what programs need: to root, all of it would be readable.
_ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
_LIBRARIES = ("lib", "lib64", "libexec")
_TEMPORARY = ("/tmp", "/var/tmp", "/run")
_OWN = ("/proc", "/dev", "/sys")  # never shown as they are
_PID_MAX_IN_NAMESPACE = (6, 14)  # the kernel since which a process namespace has its own limit
_FEWEST_PIDS = 301  # the kernel accepts no smaller limit


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of each process, but ``processes`` and ``temporary`` (bytes in /tmp), which are of all."""

    processes: int = 512
    memory: int = 4 << 30  # bytes of data
    cpu_s: int | None = None
    file_bytes: int = 1 << 30
    temporary: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the machine, shown in the sandbox at ``target`` (default: where it is).

    ``link``: a link at ``target`` with the source as its text.
    """

    source: Path
    target: Path | None = None
    writable: bool = False
    link: bool = False


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``ports`` are the ports of this machine's loopback interface that the program may connect to; None:
    the whole network. The daemon may open more while it runs.

    ``whole_machine`` shows every file as the account sees it, except what is ``hidden``.
    """

    mounts: tuple[Mount, ...] = ()
    folders: tuple[str, ...] = ()  # empty ones of its own, writable
    hidden: tuple[Path, ...] = ()
    ports: tuple[int, ...] | None = ()
    limits: ResourceLimits = ResourceLimits()
    whole_machine: bool = False

    def plan(self) -> dict[str, Any]:
        """Return the plan for the reaper, made of plain values."""
        return {
            "code": namespaces.__file__,
            "ids": (os.getuid() or _NOBODY, os.getgid() or _NOBODY),
            "mounts": tuple(self._mounts()),
            "ports": None if self.ports is None else tuple(sorted(set(self.ports))),
            "limits": tuple(self._resource_limits()),
            "pid_max": self._pid_max(),
            "seccomp": filter_program(),
        }

    def _mounts(self) -> Iterator[tuple[str, str, str]]:
        """Yield the mounts: outer folders before inner ones, so that the inner ones show."""
        shown: list[tuple[str, str, str]] = [*_machine()] if self.whole_machine else [*_system()]
        if not self.whole_machine:
            size = f"mode=1777,size={self.limits.temporary}"
            shown += [("t", size, folder) for folder in _TEMPORARY]
        for mount in self.mounts:
            source = os.path.realpath(mount.source)
            target = source if mount.target is None else str(mount.target)
            if mount.link:
                shown.append(("l", str(mount.source), target))
            elif os.path.exists(source):
                shown.append(("w" if mount.writable else "r", source, target))
        shown += [("t", "mode=700,size=64k", str(path)) for path in self._hidden(shown)]
        shown += [("d", "", folder) for folder in self.folders]
        yield from sorted(shown, key=lambda one: (one[2].count("/"), one[0] == "d"))
        if not self.whole_machine:
            yield from (("s", "", folder) for folder in ("/run",))
        yield from (("p", "", "/proc"), ("v", "", "/dev"))

    def _hidden(self, shown: list[tuple[str, str, str]]) -> Iterator[Path]:
        """Yield the hidden folders that would show otherwise, as part of another one."""
        targets = [Path(target) for kind, _, target in shown if kind in "rw"]
        for path in map(Path, map(os.path.realpath, self.hidden)):
            inside = any(path != target and path.is_relative_to(target) for target in targets)
            if inside and path.is_dir() and path not in targets:
                yield path

    def _resource_limits(self) -> Iterator[tuple[int, int]]:
        limits = self.limits
        yield resource.RLIMIT_CORE, 0
        yield resource.RLIMIT_NPROC, limits.processes
        yield resource.RLIMIT_DATA, limits.memory
        yield resource.RLIMIT_FSIZE, limits.file_bytes
        if limits.cpu_s is not None:
            yield resource.RLIMIT_CPU, limits.cpu_s

    def _pid_max(self) -> int:
        """Return a limit for the process namespace; 0 where the kernel has one for the whole machine only.

        It is what limits root, for whom the kernel ignores the limit of processes per user.
        """
        major, minor = (int(part) for part in os.uname().release.split(".")[:2])
        if (major, minor) < _PID_MAX_IN_NAMESPACE:
            return 0
        return max(self.limits.processes, _FEWEST_PIDS)


@cache
def _system() -> tuple[tuple[str, str, str], ...]:
    """Return the mounts of the system's programs and settings, read-only."""
    found = []
    for folder in _SYSTEM:
        if os.path.islink(folder):
            found.append(("l", os.readlink(folder), folder))
        elif os.path.isdir(folder):
            found.append(("r", folder, folder))
    for name in _ETC:
        real = os.path.realpath(f"/etc/{name}")
        if os.path.exists(real):
            found.append(("r", real, f"/etc/{name}"))
    return tuple(found)


def _machine() -> Iterator[tuple[str, str, str]]:
    """Yield the mounts of everything at the machine's root, as it is."""
    for entry in os.scandir("/"):
        if entry.path in _OWN:
            continue
        if entry.is_symlink():
            yield "l", os.readlink(entry.path), entry.path
        elif entry.is_dir():
            yield "w", entry.path, entry.path
    yield "r", "/sys", "/sys"


def python_mounts() -> tuple[Mount, ...]:
    """Return the mounts that our own Python needs: its installation, its environment, and our code."""
    code = Path(__file__).resolve().parents[1]
    places = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        str(Path(sys.executable).resolve().parents[1]),
    }
    return tuple(Mount(Path(place)) for place in sorted({*places, str(code)}) if place != "/usr")


def program_mounts(program: Path) -> tuple[Mount, ...]:
    """Return the mounts of an installed program: the tree of packages that it is in, or its file and the
    libraries beside its folder. The folder around ``bin`` may be a person's home, and is not shown."""
    real = Path(os.path.realpath(program))
    if str(program) == sys.executable or real.is_relative_to("/usr"):
        return () if str(program) == sys.executable else _named(program, real)
    trees = [folder for folder in real.parents if folder.name == "node_modules"]
    if trees:
        return (Mount(trees[-1]), *_named(program, real))
    return (Mount(real), *_libraries(real), *_named(program, real))


def _libraries(real: Path) -> tuple[Mount, ...]:
    """Return the mounts of the libraries in the prefix of a program, unless the prefix is a home."""
    prefix = real.parent.parent
    if real.parent.name != "bin" or Path.home().is_relative_to(prefix):
        return ()
    return tuple(Mount(prefix / name) for name in _LIBRARIES if (prefix / name).is_dir())


def _named(program: Path, real: Path) -> tuple[Mount, ...]:
    """Show the program under the name by which it is called, if that is a link from elsewhere."""
    absolute = program.absolute()
    return (
        ()
        if absolute == real or absolute.is_relative_to("/usr")
        else (Mount(real, absolute, link=True),)
    )


def loopback_ports(*urls: str) -> tuple[int, ...] | None:
    """Return the ports of these addresses; None if one of them is not on this machine's loopback."""
    ports = set()
    for url in urls:
        parts = urlsplit(url)
        if parts.hostname not in _LOOPBACK:
            return None
        ports.add(parts.port or (443 if parts.scheme == "https" else 80))
    return tuple(sorted(ports))


@lru_cache(maxsize=1)
def sandbox_problem() -> str | None:
    """Return why this system cannot make a sandbox; None if it can. Asked once, by making one."""
    from butlers.process.handle import held_by_stdin

    command = held_by_stdin(("/bin/sh", "-c", "exit 0"), Sandbox(ports=(1,)), Path("/"))
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env={}, timeout=_PROBE_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if ended.returncode == 0:
        return None
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"exit code {ended.returncode}"
