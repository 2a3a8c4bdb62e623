"""``butlers connect ics``: the feed is read as a proof and kept in General's configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from butlers.cli.connect_calendar import connect_ics
from butlers.domain.errors import InvalidArguments
from butlers.modules.calendar.config import CalendarConfig

FEED = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:a\r\nDTSTART:20260505T100000Z\r\n"
    "SUMMARY:holiday\r\nEND:VEVENT\r\nBEGIN:VEVENT\r\nUID:b\r\nSUMMARY:no start\r\nEND:VEVENT\r\n"
    "END:VCALENDAR\r\n"
)


class OneFeed(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/feed.ics" else 404)
        self.end_headers()
        self.wfile.write(FEED.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OneFeed)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_feed_is_proven_and_kept(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    connect_ics(f"{address}/feed.ics", "holidays")
    printed = capsys.readouterr()
    assert "Connected: 1 events and series" in printed.out
    assert "no start" in printed.out + printed.err
    kept = tomllib.loads((tmp_path / "butlers" / "general.toml").read_text())
    section = CalendarConfig.model_validate(kept["modules"]["calendar"])
    assert section.accounts["holidays"].kind == "ics"
    for url, name in (
        (f"{address}/feed.ics", "local"),
        (f"{address}/feed.ics", "a b"),
        ("ftp://x", "x"),
        ("http://example.org/feed.ics", "x"),  # not encrypted
    ):
        with pytest.raises(InvalidArguments):
            connect_ics(url, name)
