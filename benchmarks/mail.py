"""A first sync of a mailbox compared with plain imap-tools fetching the same mail from the same server.

Ours parses every mail, makes text of HTML, and stores it in PostgreSQL; the baseline fetches and parses in
batches of the same size and drops the result. Each side runs in a process of its own, so that its peak memory
can be compared, also between a tenth of the mail and all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from imap_tools import MailBoxUnencrypted

from benchmarks.helpers import ROOT, new_home
from benchmarks.report import Measured, report
from butlers.channels.base import InboundContext
from butlers.channels.email.config import EmailInbound
from butlers.channels.email.connector import HISTORY_BATCH, EmailSource
from butlers.channels.polling import PollingConnector
from butlers.channels.registry import load_channels
from butlers.db.database import Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.clock import SystemClock
from butlers.domain.message import InboundEnvelope
from butlers.domain.registration import Heartbeat
from butlers.switchboard.ingest import MessageIntake
from butlers.tools.attachments import BlobStore
from butlers.wire.tokens import FleetKey

sys.path.insert(0, str(ROOT / "tests"))  # the mail server of the tests

from support.dovecot import ADDRESS, PASSWORD, Dovecot, mail, running_dovecot

TIME_BOUND = 1.5
MEMORY_BOUND = 1.3  # all of the mail compared with a tenth of it
HTML = (
    "<html><body><p>Dear reader,</p>"
    + "<p>some <b>news</b> of the week</p>" * 40
    + "</body></html>"
)


def run(options: argparse.Namespace) -> None:
    with running_dovecot() as server, new_home() as home, EmbeddedPostgres(home) as postgres:
        _fill(server, options.mails)
        part = _plain(server.port, options.mails // 10)
        plain = _plain(server.port, options.mails)
        small = _ours(postgres, home / "small", server.port, options.mails // 10)
        whole = _ours(postgres, home / "whole", server.port, options.mails)
    lines = [
        Measured("time", whole[0], "s", plain[0], at_most=TIME_BOUND),
        Measured("mails per second", options.mails / whole[0], "/s", options.mails / plain[0]),
        Measured("peak memory of imap-tools", plain[1], "MB", part[1]),
        Measured("peak memory, to a tenth", whole[1], "MB", small[1], at_most=MEMORY_BOUND),
    ]
    report(
        "mail",
        lines,
        f"first sync of {options.mails} mails, every third one HTML, batches of {HISTORY_BATCH}",
    )


def _fill(server: Dovecot, count: int) -> None:
    """Write the mail into the maildir itself: dovecot finds it there."""
    folder = server.root / "mail" / ADDRESS / "new"
    owner = folder.stat()
    for number in range(count):
        text = f"mail {number}\n" + "a line of ordinary text in a mail\n" * 30
        source = mail(text, sender=f"p{number % 300}@example.com", subject=f"Subject {number}")
        if number % 3 == 0:
            source = source.replace(b"text/plain", b"text/html").replace(
                text.encode(), HTML.encode()
            )
        path = folder / f"{1_700_000_000 + number}.M{number}.bench"
        path.write_bytes(source)
        path.chmod(0o666)
    subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(folder)], check=True)


def _in_process(work: Any, *arguments: Any) -> tuple[float, float]:
    """Run work in a process of its own. Returns its seconds and its peak memory in MB."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measured, args=(theirs, work, *arguments))
    process.start()
    result: tuple[float, float] = tuple(json.loads(ours.recv()))
    process.join()
    return result


def _measured(pipe: Any, work: Any, *arguments: Any) -> None:
    seconds = work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(json.dumps([seconds, peak]))


# -- plain imap-tools ---------------------------------------------------------------------------------


def _plain(port: int, count: int) -> tuple[float, float]:
    return _in_process(_fetch_plain, port, count)


def _fetch_plain(port: int, count: int) -> float:
    with MailBoxUnencrypted("127.0.0.1", port).login(ADDRESS, PASSWORD) as box:
        began = time.perf_counter()
        fetched = 0
        for one in box.fetch(limit=count, mark_seen=False, bulk=HISTORY_BATCH):
            fetched += bool(one.subject and (one.text or one.html))
        assert fetched == count, f"fetched {fetched} of {count}"
        return time.perf_counter() - began


# -- ours ---------------------------------------------------------------------------------------------


def _ours(server: EmbeddedPostgres, blobs: Path, port: int, count: int) -> tuple[float, float]:
    return _in_process(_sync, server.dsn(), str(blobs), port, count)


def _sync(dsn: str, blobs: str, port: int, count: int) -> float:
    return asyncio.run(_sync_all(dsn, Path(blobs), port, count))


class _Intake:
    """The Switchboard's intake as a connector sees it, without a butler around it."""

    def __init__(self, database: Database, blobs: Path) -> None:
        channels = load_channels(blobs)
        store = BlobStore(blobs)
        self._database = database
        self._intake = MessageIntake(
            SystemClock(), channels, store, 1_000_000, timedelta(seconds=60)
        )
        self.cursor: dict[str, Any] | None = None
        self.stored = 0

    async def accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        raise NotImplementedError("there is only history")

    async def accept_history(self, envelopes: Sequence[InboundEnvelope], *, counted_as: str) -> int:
        async with self._database.transaction() as connection:
            new = await self._intake.store_history(connection, envelopes)
        self.stored += new
        return new

    async def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        return None

    async def read_checkpoint(self, kind: str, endpoint: str) -> dict[str, Any] | None:
        return self.cursor

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(
                "INSERT INTO connectors (kind, endpoint, instance_id, state, uptime_s, counters, cursor)"
                " VALUES ($1, $2, $3, 'healthy', 0, '{}'::jsonb, $4)"
                " ON CONFLICT (kind, endpoint) DO UPDATE SET cursor = excluded.cursor",
                kind,
                endpoint,
                instance_id,
                cursor,
            )


async def _open_database(dsn: str) -> Database:
    """Create and migrate a database of its own for one run."""
    provisioner = Provisioner(
        Login(dsn, "postgres", None, "postgres"), FleetKey(secrets.token_bytes(32))
    )
    place = ButlerSchema("switchboard", f"bench_{secrets.token_hex(4)}", None)
    login = await provisioner.provision(place)
    await migrate(login, butler_chains("switchboard", shipped_versions()))
    return await Database.open(login, "switchboard")


async def _sync_all(dsn: str, blobs: Path, port: int, count: int) -> float:
    async def secret(_name: str) -> str:
        return PASSWORD

    async def nothing(*_: Any) -> None:
        return None

    database = await _open_database(dsn)
    inbox = _Intake(database, blobs)
    context = InboundContext(SystemClock(), secret, inbox, lambda *_: None, nothing, nothing)
    account = EmailInbound(
        address=ADDRESS,
        secret="M",
        imap_host="127.0.0.1",
        imap_port=port,
        imap_security="plain",
        history_days=30_000,
    )
    source = EmailSource("bench", account, context)
    connector = PollingConnector(source, inbox)
    cursor = await connector.step(None)
    began = time.perf_counter()
    while inbox.stored < count:
        cursor = await connector.step(cursor)
    seconds = time.perf_counter() - began
    await source.close()
    await database.close()
    return seconds
