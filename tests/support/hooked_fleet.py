"""A fleet whose Messenger posts to webhooks of the test: one that takes a delivery once, one that may not."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers.domain.caller import CallerKind
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.ids import uuid7
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.codec import encode
from butlers.wire.tokens import FleetKey
from support.fleet import ROOT, Fleet, butlers_environment, command, wait_for
from support.webhook_server import WebhookServer

SECRET = b"the signing secret of this fleet"
# Whether what is told twice is one message there.
OUT = {"plain": "false", "sure": "true", "guest": "true"}
TARGETS = ("plain:anna", "sure:anna")


class HookedFleet(Fleet):
    server: WebhookServer

    def butlers(self, *arguments: str, stdin: bytes | None = None) -> Any:
        """A command, as a person types it; what it printed."""
        return subprocess.run(
            command(*arguments),
            env=butlers_environment(self.home, self.slot.offset),
            input=stdin,
            capture_output=True,
            timeout=120,
            cwd=self.home,
        )

    def configure(self) -> None:
        folder = self.home / "messenger"
        shutil.copytree(ROOT / "roster" / "messenger", folder)
        hooks = "".join(
            f'\n[channels.webhook.{name}]\nurl = "{self.server.url}"\n'
            f'secret_name = "HOOK_SECRET"\nidempotent = {idempotent}\n'
            for name, idempotent in OUT.items()
        )
        with open(folder / "butler.toml", "a") as file:
            file.write(
                f"\n[delivery]\nper_minute = 10000\nper_recipient_per_minute = 10000\n{hooks}"
            )
        self.folders["messenger"] = folder
        kept = self.butlers("secrets", "set", "HOOK_SECRET", "--value-stdin", stdin=SECRET)
        assert kept.returncode == 0, kept.stderr

    def notify(self, target: str, message: str) -> UUID:
        """A butler starts a message; it is on its way when this returns."""
        arguments = {"message": message, "channel": "webhook", "recipient": target}
        return UUID(self.call("health", "notify", arguments)["delivery_id"])

    def reply(self, target: str, message: str, request_id: UUID) -> UUID:
        """As the Switchboard hands it over."""
        key, entry = FleetKey.load(self.home), directory.find(self.home, "messenger")
        token = key.mint(CallerKind.PEER, "switchboard", "messenger")

        async def deliver() -> Any:
            async with McpClient("messenger", entry.url, lambda: token) as client:
                return await client.call(
                    "deliver", {"delivery": _reply(target, message, request_id)}
                )

        return UUID(asyncio.run(deliver())["delivery_id"])

    def delivery(self, delivery_id: UUID) -> dict[str, Any] | None:
        rows = self.rows("SELECT * FROM messenger.deliveries WHERE delivery_id = $1", delivery_id)
        return dict(rows[0]) if rows else None

    def wait_state(self, delivery_id: UUID, *states: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            found = self.delivery(delivery_id)
            return found if found and found["state"] in states else None

        return wait_for(f"{delivery_id} to be {states}", there)

    def question(self, delivery_id: UUID) -> str:
        """The id of the pending action that holds a delivery."""
        self.wait_state(delivery_id, "parked")
        (row,) = self.rows(
            "SELECT id FROM messenger.pending_actions WHERE delivery_id = $1", delivery_id
        )
        return str(row["id"])

    def approve(self, delivery_id: UUID) -> None:
        arguments = {"id": self.question(delivery_id), "decision": "approve"}
        self.call("messenger", "approvals_decide", arguments)


def _reply(target: str, message: str, request_id: UUID) -> dict[str, Any]:
    made: dict[str, Any] = encode(
        DeliveryRequest(
            uuid7(), "health", Intent.REPLY, "webhook", target, message, request_id=request_id
        )
    )
    return made


@contextmanager
def hooked_fleet(template: Path) -> Iterator[HookedFleet]:
    running = HookedFleet.copy_of(template)
    assert isinstance(running, HookedFleet)
    running.server = WebhookServer()
    try:
        running.configure()
        running.start_all()
        for target in TARGETS:  # whom the owner has approved
            first = running.notify(target, "first")
            running.approve(first)
            running.wait_state(first, "delivered")
        yield running
    finally:
        running.server.close()
        running.close()
