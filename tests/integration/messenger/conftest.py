"""The Messenger's tables in their own database, and a delivery sender that works on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from structlog.testing import capture_logs

from butlers.db.database import Database
from butlers.queue import worker
from support.deliveries import DeliveryHarness
from support.webhook_server import WebhookServer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the retry delays."""
    monkeypatch.setattr(worker, "BACKOFF_BASE_S", 0.01)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture
async def closed(
    messenger_database: Database, server: WebhookServer
) -> AsyncIterator[DeliveryHarness]:
    """A harness whose workers the test starts itself."""
    made = DeliveryHarness(messenger_database, server)
    yield made
    server.release()
    await made.close()


@pytest.fixture
async def harness(closed: DeliveryHarness) -> DeliveryHarness:
    await closed.open()
    return closed
