"""A fleet that is spoken to and answers over signed webhooks, so that all counts are taken at its doors."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from butlers.channels.webhook.sender import sign
from butlers.switchboard.dispatch import WAITING
from support.fleet import ROOT, wait_for
from support.hooked_fleet import SECRET, HookedFleet
from support.webhook_server import WebhookServer

Said = tuple[str, str]  # the event that it answers, and the words

# In and out, and whether it speaks for the owner.
HOOKS = {"plain": "true", "sure": "true", "guest": "false"}
CONNECTORS = "".join(
    f'\n[connectors.webhook.{name}]\nsecret = "HOOK_SECRET"\nowner = {owner}\n'
    for name, owner in HOOKS.items()
)


@dataclass
class TalkingFleet(HookedFleet):
    _http: httpx.Client = field(
        default_factory=lambda: httpx.Client(timeout=30, trust_env=False, verify=False)
    )
    _seen: dict[str, tuple[str | None, Said]] = field(default_factory=dict)
    _read: int = 0

    def configure(self) -> None:
        super().configure()
        folder = self.home / "switchboard"
        shutil.copytree(ROOT / "roster" / "switchboard", folder)
        with open(folder / "butler.toml", "a") as file:
            file.write(CONNECTORS)
        self.folders["switchboard"] = folder

    def spare_the_disk(self) -> None:
        """The machine does not lose its power here, and what a dead process wrote the system keeps."""
        with open(self.home / "postgres" / "data" / "postgresql.auto.conf", "a") as file:
            file.write("fsync = off\n")

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
        """Which events were answered and how, in the order in which it came."""
        return [said for said in self._heard(thread) if said[1] != WAITING]

    def notices(self) -> list[Said]:
        """Who was told that it takes longer."""
        return [said for said in self._heard() if said[1] == WAITING]

    def _heard(self, thread: str | None = None) -> list[Said]:
        """What came, without the repeats of a delivery, which a receiver knows by their key."""
        new = self.server.requests[self._read :]
        self._read += len(new)
        for arrival in new:
            body = arrival.body
            said = (body["in_reply_to"], body["message"])
            self._seen.setdefault(arrival.key, (body["thread"], said))
        return [said for where, said in self._seen.values() if thread in (None, where)]


@contextmanager
def talking_fleet(template: Path) -> Iterator[TalkingFleet]:
    running = TalkingFleet.copy_of(template)
    assert isinstance(running, TalkingFleet)
    running.server = WebhookServer()
    try:
        running.spare_the_disk()
        running.configure()
        running.start_all()
        yield running
    finally:
        running.server.close()
        running.close()
