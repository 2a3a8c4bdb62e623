"""A fleet that receives messages and answers over signed webhooks, so that counts are taken outside of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from butlers.channels.webhook.sender import sign
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.switchboard.dispatch import WAITING
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.codec import encode
from butlers.wire.tokens import FleetKey
from support.fleet import ROOT, Fleet, wait_for
from support.webhook_server import WebhookServer

SECRET = b"the signing secret of this fleet"
Said = tuple[str, str]  # the event that it answers, and the words

# Outgoing: whether the receiver takes a repeated delivery for one message.
OUT = {"plain": "false", "sure": "true", "guest": "true"}
# Incoming: whether the webhook speaks for the owner.
IN = {"plain": "true", "sure": "true", "guest": "false"}
APPROVED = ("plain:anna", "sure:anna")


@dataclass
class WebhookFleet(Fleet):
    """The four butlers, with webhooks in and out; ``server`` receives what they send."""

    server: WebhookServer = field(default_factory=WebhookServer)
    _http: httpx.Client = field(
        default_factory=lambda: httpx.Client(timeout=30, trust_env=False, verify=False)
    )
    _seen: dict[str, tuple[str | None, Said]] = field(default_factory=dict)
    _read: int = 0

    def configure(self) -> None:
        hooks = "".join(
            f'\n[channels.webhook.{name}]\nurl = "{self.server.url}"\n'
            f'secret_name = "HOOK_SECRET"\nidempotent = {idempotent}\n'
            for name, idempotent in OUT.items()
        )
        self._copy("messenger", f"\n[delivery]\nper_minute = 10000\n{PER_RECIPIENT}\n{hooks}")
        connectors = "".join(
            f'\n[connectors.webhook.{name}]\nsecret = "HOOK_SECRET"\nowner = {owner}\n'
            for name, owner in IN.items()
        )
        self._copy("switchboard", connectors)
        kept = self.butlers("secrets", "set", "HOOK_SECRET", "--value-stdin", stdin=SECRET)
        assert kept.returncode == 0, kept.stderr

    def _copy(self, name: str, more: str) -> None:
        """Give a butler a folder of its own with more configuration."""
        folder = self.home / name
        shutil.copytree(ROOT / "roster" / name, folder)
        with open(folder / "butler.toml", "a") as file:
            file.write(more)
        self.folders[name] = folder

    def spare_the_disk(self) -> None:
        """Turn fsync off: the machine does not lose its power here, and the system keeps the writes of a
        dead process."""
        with open(self.home / "postgres" / "data" / "postgresql.auto.conf", "a") as file:
            file.write("fsync = off\n")

    # -- deliveries ------------------------------------------------------------------------------

    def notify(self, target: str, message: str) -> UUID:
        """A butler starts a message; it is on its way when this returns."""
        arguments = {"message": message, "channel": "webhook", "recipient": target}
        return UUID(self.call("health", "notify", arguments)["delivery_id"])

    def reply(self, target: str, message: str, request_id: UUID) -> UUID:
        """Hand a reply to the Messenger, as the Switchboard does."""
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
            "SELECT id FROM messenger.pending_actions WHERE tool_args ->> 'delivery_id' = $1",
            str(delivery_id),
        )
        return str(row["id"])

    def approve(self, delivery_id: UUID) -> None:
        self.call("messenger", "approve_action", {"action_id": self.question(delivery_id)})

    # -- messages in, answers out ----------------------------------------------------------------

    def post(
        self, hook: str, event_id: str, text: str, thread: str | None = None, sender: str = ""
    ) -> Any | None:
        """Say something once, as a program does. None when nobody took it."""
        told = {"id": event_id, "text": text, "thread": thread, "sender": sender}
        body = json.dumps(told).encode()
        timestamp = str(int(time.time()))
        headers = {
            "Butlers-Timestamp": timestamp,
            "Butlers-Signature": sign(SECRET.decode(), timestamp, body),
        }
        url = f"http://127.0.0.1:{40100 + self.slot.offset}/webhook/{hook}"
        try:
            answer = self._http.post(url, content=body, headers=headers)
        except httpx.HTTPError:
            return None
        if answer.status_code == 202:
            return answer.json()
        assert answer.status_code in (429, 503), answer.text
        return None

    def say(
        self, hook: str, event_id: str, text: str, thread: str | None = None, sender: str = ""
    ) -> Any:
        """Say it until somebody has taken it: the sender's retry, with the same id."""
        return wait_for(
            f"{event_id} to be taken", lambda: self.post(hook, event_id, text, thread, sender)
        )

    def answers(self, thread: str | None = None) -> list[Said]:
        """Return the answered events with their answers, in the order of arrival."""
        return [said for said in self._heard(thread) if said[1] != WAITING]

    def notices(self) -> list[Said]:
        """Return the events whose sender was told that it takes longer, with the text."""
        return [said for said in self._heard() if said[1] == WAITING]

    def _heard(self, thread: str | None = None) -> list[Said]:
        """Return the received messages. A repeated delivery, recognized by its key, counts once."""
        new = self.server.requests[self._read :]
        self._read += len(new)
        for arrival in new:
            body = arrival.body
            said = (body["in_reply_to"], body["message"])
            self._seen.setdefault(arrival.key, (body["thread"], said))
        return [said for where, said in self._seen.values() if thread in (None, where)]


PER_RECIPIENT = "per_recipient_per_minute = 10000"


def _reply(target: str, message: str, request_id: UUID) -> dict[str, Any]:
    made: dict[str, Any] = encode(
        DeliveryRequest(
            uuid7(), "health", Intent.REPLY, "webhook", target, message, request_id=request_id
        )
    )
    return made


@contextmanager
def webhook_fleet(
    template: Path, *, approved: Sequence[str] = (), **environment: str
) -> Iterator[WebhookFleet]:
    """``approved``: recipients that the owner has approved before the test begins."""
    running = WebhookFleet.copy_of(template)
    assert isinstance(running, WebhookFleet)
    running.environment = environment
    try:
        running.spare_the_disk()
        running.configure()
        running.start_all()
        for target in approved:
            first = running.notify(target, "first")
            running.approve(first)
            running.wait_state(first, "delivered")
        yield running
    finally:
        running.server.close()
        running.close()
