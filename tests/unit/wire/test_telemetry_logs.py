"""Every log line has one form and names its butler, also lines of libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from support.fleet import ROOT

PROGRAM = """
import asyncio, logging, warnings
from pathlib import Path
from uuid import UUID
import structlog
from butlers.config.settings import Settings
from butlers.daemon.logs import adopt_library_logs, configure_logs
configure_logs(Settings(Path("/nowhere"), log_format="FORMAT"))
import fastmcp, fastmcp.utilities.logging, uvicorn
adopt_library_logs()
from butlers.domain.session import SessionRequest
from butlers.domain.trace import TraceContext, in_trace
from butlers.wire.telemetry import session_span

log = structlog.get_logger()
log.info("outside")
session = SessionRequest(UUID(int=7), "hello", "route")
with in_trace(TraceContext.of_trace("a" * 32)):
    with session_span(session, butler="health", runtime="reflex"):
        log.info("ours", number=1)
        for name in ("uvicorn.error", "fastmcp.server", "mcp.server", "asyncio", "anything"):
            logging.getLogger(name).warning("from %s", name)
        fastmcp.utilities.logging.get_logger("x").warning("from fastmcp.x")
        warnings.warn("warned", stacklevel=1)
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("we crashed")
            logging.getLogger("uvicorn.error").exception("they crashed")
log.info("after")
"""


def run(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("FORMAT", form)],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("json")]


def test_every_line_is_json_with_a_level_and_a_time(lines: list[dict[str, Any]]) -> None:
    assert all(line["level"] and line["timestamp"] for line in lines)
    events = [line["event"] for line in lines]
    for name in (
        "uvicorn.error",
        "fastmcp.server",
        "mcp.server",
        "asyncio",
        "anything",
        "fastmcp.x",
    ):
        assert f"from {name}" in events
    assert any("warned" in event for event in events)


def test_log_lines_in_a_span_name_butler_session_and_trace(lines: list[dict[str, Any]]) -> None:
    inside = lines[1:-1]
    assert len(inside) == 10
    for line in inside:
        assert line["butler"] == "health"
        assert line["session"] == "00000000-0000-0000-0000-000000000007"
        assert line["trace"] == "a" * 32


def test_log_lines_outside_a_span_have_no_span_fields(lines: list[dict[str, Any]]) -> None:
    for line in (lines[0], lines[-1]):
        assert not {"butler", "session", "trace"} & set(line)


def test_a_traceback_is_part_of_its_line(lines: list[dict[str, Any]]) -> None:
    for event in ("we crashed", "they crashed"):
        (line,) = (line for line in lines if line["event"] == event)
        assert "ZeroDivisionError: division by zero" in line["exception"]


def test_as_text_the_same_fields_are_there() -> None:
    found = run("text")
    for start in ("ours", "from uvicorn.error", "from fastmcp.server"):
        (line,) = (line for line in found if f"] {start}" in line)
        assert "butler=health" in line
        assert f"trace={'a' * 32}" in line
    assert sum("ZeroDivisionError: division by zero" in line for line in found) == 2
