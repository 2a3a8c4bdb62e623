"""A public host in a network of one's own: run as a program behind ``unshare --user --net --mount``.

It gives loopback a public address, names it, serves HTTP there, and runs the given requests against it: one
JSON list of arguments on stdin, one list of answers on stdout.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.offline import _raise_loopback

ADDRESS = "93.184.215.14"
NAMES = {
    "api.example.com": ADDRESS,
    "inside.example.com": "127.0.0.1",
    "meta.example.com": "169.254.169.254",
}
SIOCSIFADDR = 0x8916


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/away":
            self._answer(302, b"", {"Location": "http://127.0.0.1/secret"})
        elif self.path == "/large":
            self._answer(200, b"x" * 400_000, {})
        elif self.path == "/bytes":
            self._answer(200, b"\xff\x00", {"Content-Type": "application/octet-stream"})
        else:
            self._echo()

    def do_POST(self) -> None:
        self._echo()

    def _echo(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        told = {
            "method": self.command,
            "path": self.path,
            "body": body,
            "headers": dict(self.headers),
        }
        self._answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        return


def main() -> None:
    _raise_loopback()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        packed = socket.inet_aton(ADDRESS)
        request = struct.pack("16sH2x4s8x", b"lo:1", socket.AF_INET, packed)
        fcntl.ioctl(any_socket, SIOCSIFADDR, request)
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.writelines(f"{address} {name}\n" for name, address in NAMES.items())
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)
    for address in (ADDRESS, "127.0.0.1"):  # what must not be reached is there
        server = ThreadingHTTPServer((address, 80), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    script = sys.argv[1]
    answers = [_ask(script, arguments) for arguments in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


def _ask(script: str, arguments: dict[str, object]) -> object:
    env = {"PATH": os.environ["PATH"], "HTTP_ALLOWED_HOSTS": "*.example.com, 127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "-B", script, json.dumps(arguments)],
        env=env,
        capture_output=True,
        check=False,
    )
    return json.loads(ended.stdout)


if __name__ == "__main__":
    main()
