"""Connect the loopback ports of a sandbox with those of the machine. Runs in the reaper.

A sandbox has a network of its own with nothing in it. A listener there for each granted port is held by the
reaper, outside, which connects each connection with the same port of the machine. A port can be added later,
for a warm process that did not know its butler when it started.
"""

from __future__ import annotations

import _socket
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

CHUNK = 1 << 16
MOST_WAITING = 1 << 20  # bytes that one side may be ahead of the other
MOST_CONNECTIONS = 256
_GONE = select.POLLERR | select.POLLNVAL


class _End:
    """One socket of a connection, with the bytes that wait to be written to it."""

    def __init__(self, sock: Any) -> None:
        self.sock, self.waiting = sock, b""
        self.number: int = sock.fileno()
        self.other: _End | None = None
        self.connecting = False
        self.read_all = False  # it has sent its last byte
        self.told_end = False  # it was told that no more comes


class Relay:
    """Registers its descriptors with the reaper's poll object and handles their events."""

    def __init__(
        self, listeners: Mapping[int, int], listen: Callable[[int], int], poll: Any
    ) -> None:
        """``listeners``: descriptors by port. ``listen`` makes another one in the sandbox's network."""
        self._poll, self._listen = poll, listen
        self._ports: dict[int, int] = {}  # by descriptor
        self._ends: dict[int, _End] = {}
        for port, number in listeners.items():
            self._add(port, number)

    def open_port(self, port: int) -> None:
        """Let the sandbox reach this port from now on."""
        if port not in self._ports.values():
            self._add(port, self._listen(port))

    def _add(self, port: int, number: int) -> None:
        os.set_blocking(number, False)
        self._ports[number] = port
        self._poll.register(number, select.POLLIN)

    def handle(self, number: int, events: int) -> None:
        if number in self._ports:
            self._accept(number)
        elif (end := self._ends.get(number)) is not None:
            try:
                self._move(end, events)
            except OSError:
                self._close(end)

    def _accept(self, number: int) -> None:
        listener: Any = _socket.socket(fileno=os.dup(number))
        try:
            accepted, _ = listener._accept()
        except OSError:
            return
        finally:
            listener.close()
        inside = _socket.socket(fileno=accepted)
        if len(self._ends) >= 2 * MOST_CONNECTIONS:
            inside.close()
            return
        self._connect(inside, self._ports[number])

    def _connect(self, inside: Any, port: int) -> None:
        outside = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        near, far = _End(inside), _End(outside)
        near.other, far.other = far, near
        for end in (near, far):
            os.set_inheritable(end.number, False)
            os.set_blocking(end.number, False)
            end.sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            self._ends[end.number] = end
            self._poll.register(end.number, 0)
        try:
            outside.connect(("127.0.0.1", port))
        except BlockingIOError:
            far.connecting = True
        except OSError:
            self._close(near)
            return
        self._watch(near)
        self._watch(far)

    def _move(self, end: _End, events: int) -> None:
        other = end.other
        assert other is not None
        if end.connecting and events & (select.POLLOUT | select.POLLHUP | _GONE):
            if end.sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR):
                raise OSError
            end.connecting = False
        if events & select.POLLIN or (events & select.POLLHUP and not end.read_all):
            self._read(end, other)
        if end.waiting and not end.connecting:
            self._write(end)
        self._tell_end(other)
        self._tell_end(end)
        if events & _GONE or (end.told_end and other.told_end):
            self._close(end)
            return
        self._watch(end)
        self._watch(other)

    def _read(self, end: _End, other: _End) -> None:
        if end.read_all or len(other.waiting) >= MOST_WAITING:
            return
        try:
            data = end.sock.recv(CHUNK)
        except BlockingIOError:
            return
        if not data:
            end.read_all = True
            return
        other.waiting += data
        if not other.connecting:
            self._write(other)

    def _write(self, end: _End) -> None:
        try:
            sent = end.sock.send(end.waiting)
        except BlockingIOError:
            return
        end.waiting = end.waiting[sent:]

    def _tell_end(self, end: _End) -> None:
        """Close the writing side once its peer has sent everything."""
        other = end.other
        assert other is not None
        if other.read_all and not end.waiting and not end.told_end and not end.connecting:
            end.told_end = True
            end.sock.shutdown(_socket.SHUT_WR)

    def _watch(self, end: _End) -> None:
        other = end.other
        assert other is not None
        events = 0
        if not end.read_all and len(other.waiting) < MOST_WAITING:
            events |= select.POLLIN
        if end.waiting or end.connecting:
            events |= select.POLLOUT
        if events:
            self._poll.register(end.number, events)
        else:  # a hang-up would be reported again and again
            self._unregister(end)

    def _close(self, end: _End) -> None:
        assert end.other is not None
        for one in (end, end.other):
            if self._ends.pop(one.number, None) is not None:
                self._unregister(one)
                one.sock.close()

    def _unregister(self, end: _End) -> None:
        try:
            self._poll.unregister(end.number)
        except KeyError:
            return
