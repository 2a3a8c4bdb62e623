"""Planted secrets do not come out: not in logs, tracebacks, errors, `status` or `/health`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError
from butlers.domain.redaction import MASK, redactor
from butlers.domain.session import Outcome, SessionRequest
from butlers.secrets.master_key import MasterKey
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey
from support.fake_runtime import FakeRuntime
from support.fleet import Fleet, butlers_environment
from support.in_process import MakeButler

PLANTED = 'plänted "secret" one'
SHAPED = "sk-ant-api03-planted0123456789"

# Every way in which our code or a library writes a log line.
SCRIPT = """
import asyncio, json, logging, sys
import structlog
from butlers.config.settings import Settings
from butlers.daemon.logs import configure_logs
from butlers.domain.redaction import redactor

word, shaped = sys.argv[1:3]
configure_logs(Settings.from_environ({"BUTLERS_LOG": sys.argv[3], "HOME": "/tmp"}), level=logging.DEBUG)
import fastmcp  # brings log handlers of its own
redactor.register(word)

class Holder:
    def __repr__(self):
        return f"<holder {word!r}>"

log = structlog.get_logger()
structlog.contextvars.bind_contextvars(bound=word)
log.info(f"event {word}", value=word, nested={"deep": [word, {word: shaped}]})
log.warning("bytes", raw=word.encode(), holder=Holder(), error=ValueError(word))
log.info("json", body=json.dumps({"key": word}), other=shaped)
log.info("url", dsn="postgresql://butler:hunter2-planted@localhost/butlers")
def fail():
    raise RuntimeError(f"failed with {word}") from ValueError(shaped)
try:
    fail()
except RuntimeError:
    log.exception("crashed")
    logging.getLogger("library").exception("also %s", word)
    logging.getLogger("fastmcp.server").exception("fastmcp too %s", word)
std = logging.getLogger("library")
std.error("message %s %r", word, shaped)
std.error("extra", extra={"token": word, "deep": {"x": [shaped]}})
std.error("bad arguments %s %s %s", word)
std.error({"as": word})
std.error("stack", stack_info=True)
logging.getLogger("fastmcp").error("direct %s", word)

async def unawaited_failure():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    future.set_exception(RuntimeError(word))
    del future
asyncio.run(unawaited_failure())
fail()  # and the end of the program
"""


@pytest.mark.parametrize("style", ["text", "json"])
def test_no_log_line_shows_a_planted_secret(style: str, tmp_path: Path) -> None:
    script = tmp_path / "writes_logs.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), PLANTED, SHAPED, style],
        env=butlers_environment(tmp_path, 0, COLUMNS="400"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    for expected in (
        "crashed",
        "also",
        "fastmcp too",
        "direct",
        "message",
        "stack",
        "Future exception was never retrieved",
        "RuntimeError: failed with",
        "postgresql://butler:",
    ):
        assert expected in said, said
    assert MASK in said
    for part in ("planted", "plänted", 'nted "sec', "nted \\", "\\u00e4", "\\xc3"):
        assert part not in said, said
    if style == "json":
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        events = {line["event"] for line in lines if "event" in line}
        assert {f"event {MASK}", "crashed", "json", "url"} <= events
        assert all(line["bound"] == MASK for line in lines if "event" in line)


# -- a butler at work --------------------------------------------------------------------------------


@pytest.fixture
def fleet(template_home: Path) -> Iterator[Fleet]:
    """The Switchboard alone, as a process, on a home with planted secrets."""
    fleet = Fleet.copy_of(template_home)
    try:
        server = EmbeddedPostgres(fleet.home)
        server.acquire()
        for scope in ("shared", "switchboard"):
            kept = fleet.butlers(
                *("secrets", "set", "PLANTED", "--scope", scope, "--value-stdin"),
                stdin=f"planted-{scope}-value",
            )
            assert kept.returncode == 0, kept.stderr
        fleet.start("switchboard", PLANTED_KEY="planted-environment-value", BUTLERS_LOG="json")
        fleet.wait_healthy("switchboard")
        server.release()
        yield fleet
    finally:
        fleet.close()


def test_health_status_logs_and_errors_of_a_butler_show_no_secret(fleet: Fleet) -> None:
    health = json.dumps(fleet.health("switchboard"))
    status = json.dumps(fleet.call("switchboard", "status"))
    listed = fleet.butlers("status", "--json")
    with pytest.raises(Exception, match="argument") as refused:
        fleet.call("switchboard", "status", {"planted": 1})
    fleet.stop("switchboard")
    key = FleetKey.load(fleet.home)
    master = MasterKey.load(Settings.from_environ(butlers_environment(fleet.home, 0)))
    secrets = {
        "planted": "planted-",
        "fleet key": key.secret.hex(),
        "role's password": key.derive("role:switchboard"),
        "superuser's password": (fleet.home / "postgres" / "password").read_text().strip(),
        "master key": master.secret.hex(),
    }
    seen = {
        "health": health,
        "status": status,
        "command": listed.stdout + listed.stderr,
        "error": str(refused.value),
        "log": fleet.log("switchboard"),
        "database's log": "".join(
            path.read_text(errors="replace") for path in (fleet.home / "postgres").glob("*.log")
        ),
    }
    shown = [
        (where, what)
        for where, text in seen.items()
        for what, value in secrets.items()
        if value in text
    ]
    assert shown == []
    assert "butler ready" in seen["log"]


# -- what is kept of a session ---------------------------------------------------------------------


async def test_session_rows_audit_and_answers_hold_no_secret(make_butler: MakeButler) -> None:
    """A model that was told a secret says it everywhere it can; only its mask is kept."""
    tester = make_butler()
    butler = await tester.start()
    redactor.register(PLANTED)

    async def think(client: McpClient) -> str:
        await client.call("say", {"text": PLANTED})
        await client.call("write", {"text": f"{SHAPED} and {PLANTED}"})
        with pytest.raises(ButlersError):
            await client.call("write_and_fail", {"text": PLANTED})
        return f"the secret is {PLANTED}"

    butler.spawner.model = FakeRuntime(think, outcome=Outcome.CRASHED)
    session = SessionRequest(uuid7(), f"what is {PLANTED}?", "trigger", request_id=uuid7())
    await butler.spawner.run(session)
    async with tester.owner() as owner:
        shown = await owner.call("sessions_get", {"id": str(session.session_id)})
    kept = [
        shown,
        await tester.rows("SELECT * FROM sessions"),
        await tester.rows("SELECT * FROM tool_calls"),
    ]
    for part in kept:
        text = json.dumps(part, default=str, ensure_ascii=False)
        assert MASK in text
        assert PLANTED not in text
        assert json.dumps(PLANTED)[1:-1] not in text
        assert SHAPED not in text
