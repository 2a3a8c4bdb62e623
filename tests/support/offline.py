"""A test without a network: its thread has loopback, and nothing else.

What a test opens and starts while it is offline (sockets, threads, processes and theirs) is offline too, so
that a CLI which phones home finds nobody. The database is reached by a Unix socket and stays in reach.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

OWN_NAMESPACE = "/proc/thread-self/ns/net"  # namespaces belong to threads
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
INTERFACE = struct.Struct("16sh22x")  # struct ifreq: a name and flags


_without_network: int | None = None  # a network namespace of this process, made once


@contextmanager
def only_loopback() -> Iterator[None]:
    """Move this thread to a network with loopback alone. OSError where the system does not permit it."""
    before = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter()
        try:
            yield
        finally:
            _libc("setns", before, CLONE_NEWNET)
    finally:
        os.close(before)


def _enter() -> None:
    global _without_network
    if _without_network is not None:
        _libc("setns", _without_network, CLONE_NEWNET)
        return
    _libc("unshare", CLONE_NEWNET)
    _raise_loopback()
    _without_network = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)


def _libc(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        flags = fcntl.ioctl(any_socket, SIOCGIFFLAGS, INTERFACE.pack(b"lo", 0))
        up = INTERFACE.unpack(flags)[1] | IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", up))


@contextmanager
def isolated() -> Iterator[None]:
    """Run without the network. Where that is not permitted, warn and run with it; in CI, fail."""
    isolation = only_loopback()
    try:
        isolation.__enter__()
    except OSError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(
                f"this test must not reach the network, and cannot be kept from it: {error}"
            )
        warnings.warn(f"not isolated from the network: {error}", stacklevel=2)
        yield
        return
    try:
        yield
    finally:
        isolation.__exit__(None, None, None)


@pytest.fixture
def offline() -> Iterator[None]:
    with isolated():
        yield
