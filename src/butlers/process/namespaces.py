"""Start a program in namespaces of its own: the part of the sandbox that runs in the reaper's child.

The reaper loads this file only for a program that has a sandbox (see ``sandbox``, which makes the plan).
Like the reaper it uses the standard library alone, and little of that. Three processes take part:

1. A first child makes the namespaces and the listeners of the relay, and exits.
2. Its child, the first process of the new process namespace, makes the mounts, gives up all capabilities
   and waits. When it exits, the kernel ends everything in the namespace.
3. The program.
"""

from __future__ import annotations

import _socket  # the public module imports much more
import ctypes
import fcntl
import os
import resource  # in the sandbox it could not be loaded any more
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    Plan = Mapping[str, Any]
else:
    import _signal as signal

NEW_USER, NEW_MOUNT, NEW_PID = 0x10000000, 0x00020000, 0x20000000
NEW_NET, NEW_IPC = 0x40000000, 0x08000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE, MS_RDONLY = 16384, 1 << 18, 1
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 24, 22, 38
SECCOMP_FILTER = 2
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
SOL_SOCKET, SCM_RIGHTS, SO_REUSEADDR = 1, 1, 2
OLD = "/.old"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
NOT_STARTED = 127
LISTEN_BACKLOG = 64
PORT_SIZE = 2

_libc = ctypes.CDLL(None, use_errno=True)


class Launch:
    """A started program: its first process, its exit status, and the listeners in its network, by port."""

    def __init__(self, child: int, status: int, line: Any, listeners: dict[int, int]) -> None:
        self.child, self._status, self._line, self.listeners = child, status, line, listeners

    def exit_status(self, own: int) -> int:
        """Return the program's wait status, or ``own`` if its first process was killed."""
        written = os.read(self._status, 4)
        return int.from_bytes(written, "little") if len(written) == 4 else own

    def listen(self, port: int) -> int:
        """Have the first process open this port in its network; return the listener."""
        self._line.send(port.to_bytes(PORT_SIZE))
        (listener,) = _receive(self._line, 1)
        return listener


def launch(
    plan: Plan, argv: tuple[str, ...], env: Mapping[str, str] | None, cwd: str, report: int
) -> Launch | None:
    """Start the program; None if that failed, with the reason written to ``report``."""
    pid_reader, pid_writer = os.pipe()
    status_reader, status_writer = os.pipe()
    # The line to the first process, which ends when the reaper is gone.
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    first = os.fork()
    if first == 0:
        ours.close()
        try:
            _make_namespaces(plan, theirs)
            if (child := os.fork()) != 0:
                os.write(pid_writer, child.to_bytes(4, "little"))
                os._exit(0)
            _run_first_process(plan, (argv, env, cwd), report, status_writer, theirs)
        except BaseException as error:  # noqa: BLE001  (nothing above could report it)
            _fail(report, f"the sandbox could not be made: {error}")
    os.close(pid_writer)
    os.close(status_writer)
    theirs.close()
    ports = plan["ports"] or ()
    listeners = dict(zip(ports, _receive(ours, len(ports)), strict=False))
    written = os.read(pid_reader, 4)
    os.waitpid(first, 0)
    os.close(pid_reader)
    if len(written) != 4:
        return None
    return Launch(int.from_bytes(written, "little"), status_reader, ours, listeners)


def _fail(report: int, message: str) -> NoReturn:
    os.write(report, message.encode("utf-8", "replace")[:1000])
    os._exit(NOT_STARTED)


# -- the first child: namespaces and listeners ------------------------------------------------------


def _make_namespaces(plan: Plan, line: Any) -> None:
    user, group = os.getuid(), os.getgid()
    if user == 0:
        _drop_groups()
    network = 0 if plan["ports"] is None else NEW_NET
    _check(_libc.unshare(NEW_USER | NEW_MOUNT | NEW_PID | NEW_IPC | network), "namespaces")
    inner_user, inner_group = plan["ids"]
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/gid_map", f"{inner_group} {group} 1")
    _write("/proc/self/uid_map", f"{inner_user} {user} 1")
    if network:
        _raise_loopback()
        if plan["ports"]:
            _send(line, [_listener(port) for port in plan["ports"]])


def _drop_groups() -> None:
    try:
        os.setgroups([])
    except PermissionError:  # a container without this right
        return


def _raise_loopback() -> None:
    """Switch on the loopback interface of the new network, which has no other."""
    with_interface = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder) + bytes(22)
    fcntl.ioctl(with_interface.fileno(), SIOCSIFFLAGS, request)
    with_interface.close()


def _listener(port: int) -> Any:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(LISTEN_BACKLOG)
    return listener


def _send(line: Any, listeners: list[Any]) -> None:
    numbers = b"".join(one.fileno().to_bytes(4, sys.byteorder) for one in listeners)
    line.sendmsg([b"l"], [(SOL_SOCKET, SCM_RIGHTS, numbers)])


def _receive(line: Any, count: int) -> list[int]:
    if not count:
        return []
    _, ancillary, _, _ = line.recvmsg(1, 16 + 4 * count + 64)
    rights = (SOL_SOCKET, SCM_RIGHTS)
    data = b"".join(part for level, kind, part in ancillary if (level, kind) == rights)
    numbers = [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, len(data) - 3, 4)]
    for number in numbers:
        os.set_inheritable(number, False)
    return numbers


# -- the first process of the namespace: mounts, no capabilities, waiting ----------------------------


def _run_first_process(
    plan: Plan,
    program: tuple[tuple[str, ...], Mapping[str, str] | None, str],
    report: int,
    status: int,
    line: Any,
) -> NoReturn:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _mount_all(plan["mounts"])
    _limit_namespace(plan)
    _give_up_capabilities()
    _filter_calls(plan["seccomp"])
    child = os.fork()
    if child == 0:
        _execute(plan, program, report)
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    kept = sorted({status, line.fileno(), reading, writing})
    for low, high in zip([2, *kept], [*kept, 1 << 16], strict=True):
        os.closerange(low + 1, high)
    ended = _wait(child, line, reading)
    os.write(status, ended.to_bytes(4, "little"))
    os._exit(0)


def _execute(
    plan: Plan, program: tuple[tuple[str, ...], Mapping[str, str] | None, str], report: int
) -> NoReturn:
    argv, env, cwd = program
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        for kind, most in plan["limits"]:
            hard = resource.getrlimit(kind)[1]
            value = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (value, value))
        if env is None:
            os.execvp(argv[0], argv)
        os.execvpe(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001  (the program takes this process's place)
        _fail(report, f"{argv[0]} could not be started: {error}")


def _wait(child: int, line: Any, woken: int) -> int:
    """Return the program's wait status. Open ports for the reaper; exit if it is gone."""
    poll = select.poll()
    poll.register(line.fileno(), select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {number for number, _ in poll.poll()}
        if line.fileno() in ready:
            _open_port(line)
        if woken in ready:
            os.read(woken, 1 << 10)
            if (status := _collect(child)) is not None:
                return status


def _open_port(line: Any) -> None:
    message = line.recv(PORT_SIZE)
    if len(message) != PORT_SIZE:
        os._exit(NOT_STARTED)
    listener = _listener(int.from_bytes(message))
    _send(line, [listener])
    listener.close()


def _collect(child: int) -> int | None:
    """Wait for all that have ended; return the program's status if it is among them."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended in (0, child):
            return status if ended == child else None


def _mount_all(mounts: Sequence[tuple[str, str, str]]) -> None:
    """Build a new root from the listed mounts, and leave the old one."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("butlers", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    os.chdir("/tmp")
    os.mkdir(f".{OLD}", 0o700)
    _check(_libc.pivot_root(b".", f".{OLD}".encode()), "a new root")
    os.chdir("/")
    for kind, source, target in mounts:
        _MOUNTERS[kind](source, target)
    _check(_libc.umount2(OLD.encode(), MNT_DETACH), "leaving the old root")
    os.rmdir(OLD)
    _mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(source: str, target: str, attributes: int) -> None:
    old = OLD + source
    if os.path.isdir(old):
        os.makedirs(target, 0o755, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    _mount(old, target, None, MS_BIND | MS_REC)
    _set_attributes(target, attributes)


def _bind_readonly(source: str, target: str) -> None:
    _bind(source, target, ATTR_NOSUID | ATTR_NODEV | ATTR_RDONLY)


def _bind_writable(source: str, target: str) -> None:
    _bind(source, target, ATTR_NOSUID | ATTR_NODEV)


def _tmpfs(options: str, target: str) -> None:
    os.makedirs(target, 0o755, exist_ok=True)
    _mount("butlers", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _folder(_source: str, target: str) -> None:
    os.makedirs(target, 0o700, exist_ok=True)


def _link(text: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    if not os.path.lexists(target):
        os.symlink(text, target)


def _seal(_source: str, target: str) -> None:
    """Make a folder of our own read-only once everything in it is mounted."""
    _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _proc(_source: str, target: str) -> None:
    os.makedirs(target, 0o555, exist_ok=True)
    _mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _dev(_source: str, target: str) -> None:
    """Provide the harmless devices only: to root, without capabilities, the disks would be open."""
    _tmpfs("mode=755,size=64k", target)
    for name in DEVICES:
        if os.path.exists(f"{OLD}/dev/{name}"):
            os.close(os.open(f"{target}/{name}", os.O_CREAT | os.O_WRONLY, 0o444))
            _mount(f"{OLD}/dev/{name}", f"{target}/{name}", None, MS_BIND)
    for name, number in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{number}", f"{target}/{name}")
    os.mkdir(f"{target}/shm", 0o1777)
    _mount("butlers", f"{target}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")


_MOUNTERS = {
    "r": _bind_readonly,
    "w": _bind_writable,
    "t": _tmpfs,
    "d": _folder,
    "l": _link,
    "s": _seal,
    "p": _proc,
    "v": _dev,
}


def _limit_namespace(plan: Plan) -> None:
    """Allow no namespaces inside this one and limit its processes, then make /proc read-only.

    Without the latter, root could change settings of the whole machine: they ask for the user, not for
    capabilities.
    """
    _write("/proc/sys/user/max_user_namespaces", "0")
    if plan["pid_max"]:
        _write("/proc/sys/kernel/pid_max", str(plan["pid_max"]))
    _set_attributes("/proc", ATTR_RDONLY)


def _give_up_capabilities() -> None:
    for number in range(LAST_CAPABILITY + 1):
        if _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # the kernel has no more
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "giving up capabilities")
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _filter_calls(program: bytes) -> None:
    if not program:
        return
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    filtered = Program(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    set_filter = _libc.prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(filtered), 0, 0)
    _check(set_filter, "the filter of system calls")


# -- system calls ------------------------------------------------------------------------------------


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    done = _libc.mount(
        None if source is None else source.encode(),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(done, f"a mount at {target}")


def _set_attributes(target: str, attributes: int) -> None:
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    number, size = ctypes.c_long(SYS_MOUNT_SETATTR), ctypes.c_size_t(32)
    where = (ctypes.c_int(AT_FDCWD), os.fsencode(target), ctypes.c_uint(AT_RECURSIVE))
    _check(_libc.syscall(number, *where, wanted, size), f"protecting {target}")


def _check(result: int, step: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
