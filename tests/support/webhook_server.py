"""The receiving end of a webhook: a real HTTP server that counts, and misbehaves as it is told."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Behaviour:
    """Answer to one request: a status with a body, or none at all."""

    status: int = 200
    body: str | None = None  # None: an id of its own
    headers: tuple[tuple[str, str], ...] = ()
    takes: bool = True  # whether the message counts as arrived
    waits: bool = False  # answers when the test lets it
    hangs: bool = False  # accepts and never answers
    closes: bool = False  # reads, and closes before it answers


ANSWER = Behaviour()
FAIL = Behaviour(500, "it broke", takes=False)
HANG = Behaviour(waits=True, hangs=True)
WAIT = Behaviour(waits=True)
CLOSE = Behaviour(closes=True)


def status(code: int, body: str = "", *, takes: bool = False, **headers: str) -> Behaviour:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Behaviour(code, body, named, takes=takes)


@dataclass(frozen=True)
class Arrival:
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


class WebhookServer:
    """``script`` says what becomes of the next requests; after that they are answered."""

    def __init__(self) -> None:
        self.requests: list[Arrival] = []
        self.messages: dict[str, str] = {}  # by idempotency key: what arrived, and its id here
        self.times: dict[str, int] = {}  # how often each was taken, were nothing deduplicated
        self.usual = ANSWER
        self.poison: set[str] = set()  # messages that it falls over
        self._script: deque[Behaviour] = deque()
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def script(self, *behaviours: Behaviour) -> None:
        self._script.extend(behaviours)

    def release(self) -> None:
        """Let those answer that wait, and those go that hang."""
        self._released.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, arrival: Arrival) -> Behaviour:
        with self._lock:
            self.requests.append(arrival)
            behaviour = self._script.popleft() if self._script else self.usual
            if arrival.body["message"] in self.poison:
                behaviour = FAIL
            if behaviour.takes:
                self.times[arrival.key] = self.times.get(arrival.key, 0) + 1
                self.messages.setdefault(arrival.key, f"m{len(self.messages) + 1}")
            return behaviour

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                named = {name.lower(): value for name, value in self.headers.items()}
                arrival = Arrival(named, raw)
                behaviour = server.take(arrival)
                if behaviour.waits:
                    server._released.wait()
                if behaviour.closes:
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif not behaviour.hangs:
                    self._answer(behaviour, arrival)

            def _answer(self, behaviour: Behaviour, arrival: Arrival) -> None:
                body = behaviour.body
                if body is None:
                    body = json.dumps({"id": server.messages[arrival.key]})
                self.send_response(behaviour.status)
                for name, value in behaviour.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                return None

        return Handler
