"""Servers of the outside world for channel tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.bot_api import BotApiServer
from support.dovecot import Dovecot, running_dovecot
from support.smtp_server import SmtpServer


@pytest.fixture
def bot_api() -> Iterator[BotApiServer]:
    running = BotApiServer()
    yield running
    running.close()


@pytest.fixture(scope="module")
def dovecot_server() -> Iterator[Dovecot]:
    """One mail server for the tests of a file."""
    with running_dovecot() as running:
        yield running


@pytest.fixture
def dovecot(dovecot_server: Dovecot) -> Dovecot:
    """The mail server with empty mailboxes and the first password."""
    dovecot_server.reset()
    return dovecot_server


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    running = SmtpServer()
    yield running
    running.close()
