"""A private radicale on loopback: a real CardDAV and CalDAV server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.fleet import wait_for

USER, PASSWORD = "me", "the password of the tests"

_CONFIG = """
[server]
hosts = 127.0.0.1:{port}
max_connections = 50
timeout = 60
[auth]
type = htpasswd
htpasswd_filename = {root}/users
htpasswd_encryption = plain
delay = 0
[storage]
filesystem_folder = {root}/data
[logging]
level = warning
"""
_ADDRESS_BOOK = """<?xml version="1.0" encoding="utf-8"?>
<mkcol xmlns="DAV:" xmlns:c="urn:ietf:params:xml:ns:carddav"><set><prop>
<resourcetype><collection/><c:addressbook/></resourcetype><displayname>{name}</displayname>
</prop></set></mkcol>"""


class RadicaleServer:
    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(
            base_url=self.url, auth=(USER, PASSWORD), trust_env=False, timeout=60
        )

    def make_address_book(self, name: str) -> str:
        """Create an address book and return its address."""
        path = f"/{USER}/{name}/"
        body = _ADDRESS_BOOK.format(name=name)
        self.client.request("MKCOL", path, content=body).raise_for_status()
        return f"{self.url}{path}"

    def put_card(self, book: str, key: str, text: str) -> None:
        headers = {"Content-Type": "text/vcard"}
        self.client.put(f"{book}{key}.vcf", content=text, headers=headers).raise_for_status()

    def put_all(self, book: str, cards: Mapping[str, str]) -> None:
        """Replace the content of an address book with many cards at once."""
        headers = {"Content-Type": "text/vcard"}
        self.client.put(
            book, content="".join(cards.values()), headers=headers, timeout=600
        ).raise_for_status()

    def delete_card(self, book: str, key: str) -> None:
        self.client.delete(f"{book}{key}.vcf").raise_for_status()

    def forget_tokens(self) -> None:
        """Lose every sync token, as a server does that was restored from a backup."""
        for folder in self.root.rglob("sync-token"):
            shutil.rmtree(folder)


def vcard(uid: str, name: str, *lines: str) -> str:
    body = "".join(f"{line}\r\n" for line in (f"UID:{uid}", f"FN:{name}", f"N:{name};;;;", *lines))
    return f"BEGIN:VCARD\r\nVERSION:3.0\r\n{body}END:VCARD\r\n"


@contextmanager
def running_radicale() -> Iterator[RadicaleServer]:
    root = Path(tempfile.mkdtemp(prefix="radicale-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (root / "users").write_text(f"{USER}:{PASSWORD}\n")
    (root / "config").write_text(_CONFIG.format(root=root, port=port))
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "radicale", "-C", str(root / "config")], stdout=log, stderr=log
        )
    server = RadicaleServer(root, port)
    try:
        wait_for("radicale to answer", lambda: _answers(server, process))
        yield server
    finally:
        server.client.close()
        process.terminate()
        process.wait(10)
        shutil.rmtree(root, ignore_errors=True)


def _answers(server: RadicaleServer, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (server.root / "log").read_text()
    try:
        return bool(server.client.get("/.web/").status_code)
    except httpx.TransportError:
        return False
