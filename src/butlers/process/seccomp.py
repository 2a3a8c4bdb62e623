"""The filter of system calls of a sandbox, as a program for the kernel.

It refuses calls that a program of ours never needs and that reach far into the kernel or into other
processes: mounts, namespaces, tracing, keys, kernel modules, io_uring. It also refuses sockets other than
local and Internet ones: some families, such as vsock, do not belong to a network namespace.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in the kernel's record of a call
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NEW_NAMESPACE = 0x7E020000  # flags of clone
_X32 = 0x40000000  # numbers of a second, older interface on x86-64
_TERMINAL_INPUT = (
    0x5412,
    0x541C,
)  # TIOCSTI, TIOCLINUX: they type into the terminal of another process
_FAMILIES = (1, 2, 10, 16)  # local, IPv4, IPv6, netlink

# Name: number on x86-64, number on AArch64.
_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# A program that meets these as missing uses an older call.
_MISSING = {
    "clone3": (435, 435),  # its flags are in memory, where a filter cannot read them
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
}
_CLONE, _IOCTL, _SOCKET = (56, 220), (16, 29), (41, 198)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@cache
def filter_program() -> bytes:
    """Return the filter for this machine; empty if its architecture is not known here."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return b""
    column, architecture = known
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, architecture, 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        *([_line(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)] if column == 0 else []),
    ]
    for numbers, error in ((_REFUSED, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for number in numbers.values():
            lines += [_line(_EQUAL, number[column], 0, 1), _refuse(error)]
    lines += _when(
        _CLONE[column], _FIRST, [_line(_ANY_BIT, _NEW_NAMESPACE, 0, 1), _refuse(errno.EPERM)]
    )
    typed = [
        part
        for code in _TERMINAL_INPUT
        for part in (_line(_EQUAL, code, 0, 1), _refuse(errno.EPERM))
    ]
    lines += _when(_IOCTL[column], _SECOND, typed)
    allowed = [
        part for one in _FAMILIES for part in (_line(_EQUAL, one, 0, 1), _line(_RETURN, _ALLOW))
    ]
    lines += _when(_SOCKET[column], _FIRST, [*allowed, _refuse(errno.EAFNOSUPPORT)])
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _when(number: int, argument: int, lines: list[bytes]) -> list[bytes]:
    """Run the lines on an argument of this call, then restore the number for what follows."""
    inner = [_line(_LOAD, argument), *lines, _line(_LOAD, _NUMBER)]
    return [_line(_EQUAL, number, 0, len(inner)), *inner]


def _refuse(error: int) -> bytes:
    return _line(_RETURN, _ERRNO | error)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
