"""Binds a butler's port early, and names the process that holds it if that fails."""

from __future__ import annotations

import errno
import socket
import time

import psutil

from butlers.domain.errors import PortTaken

LOOPBACK = "127.0.0.1"
HOLDERS = (
    LOOPBACK,
    "0.0.0.0",
    "::",
    "::ffff:127.0.0.1",
)  # a listener on any of these blocks the port
BACKLOG = 2048
PATIENCE_S = (
    1.0  # the 401xx range is ephemeral: an outgoing connection may hold a port for a moment
)


def bind_port(port: int, *, patience_s: float = PATIENCE_S) -> socket.socket:
    deadline = time.monotonic() + patience_s
    while True:
        # asyncio disables Nagle's algorithm only for sockets with a named protocol. Otherwise each answer
        # would wait about 40 ms for an acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            listener.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            holder = find_holder(port)
            if holder is not None or time.monotonic() > deadline:
                raise _taken(port, holder, error) from error
            time.sleep(0.05)
        else:
            return listener


def hold_port(listener: socket.socket) -> None:
    """Listen on the port. Linux lets two processes bind it until one of them listens."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        port = listener.getsockname()[1]
        raise _taken(port, find_holder(port), error) from error


def find_holder(port: int) -> psutil.Process | None:
    """Return the process that listens on a loopback port, or None if it is not visible."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            and connection.laddr.ip in HOLDERS
            and connection.pid
        ):
            try:
                return psutil.Process(connection.pid)
            except psutil.NoSuchProcess:
                return None
    return None


def _taken(port: int, holder: psutil.Process | None, error: OSError) -> PortTaken:
    return PortTaken(
        f"port {port} cannot be bound: {_describe(holder, error)}",
        hint="end that process, change the port in butler.toml, or shift all ports with"
        " BUTLERS_PORT_OFFSET",
    )


def _describe(holder: psutil.Process | None, error: OSError) -> str:
    if holder is None:
        return error.strerror or str(error)
    try:
        command = " ".join(holder.cmdline()) or holder.name()
    except psutil.Error:
        command = "a process of another user"
    return f"process {holder.pid} ({command[:120]}) listens there"
