"""A storm over a fleet: processes die, freeze and stay away, the database too, as a seed has it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

from butlers.db.embedded import EmbeddedPostgres
from support.fleet import ROOT, wait_for
from support.webhook_fleet import WebhookFleet

ON_THE_ROAD = ("switchboard", "health", "messenger")
STAND_IN_PORT = 40108  # of the ten that a slot has

CONVERSATIONS = 8
REPEATS = 0.1  # of the senders, who did not hear that it was taken
Held = list[tuple[UUID, int]]  # items, with the fence of their claim
BREATH_S = 180.0  # without a single answer more, before a test is given up


class Storm:
    """N messages in, and faults whenever so and so many answers are out."""

    def __init__(self, fleet: WebhookFleet, seed: int, messages: int) -> None:
        self.fleet = fleet
        self.messages = messages
        self.happened: list[str] = []
        self._seed = seed
        self._random = random.Random(seed)
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def conversations(self) -> dict[str, list[int]]:
        """The numbers of each conversation's messages, in order."""
        return {
            f"talk-{talk}": list(range(talk, self.messages, CONVERSATIONS))
            for talk in range(CONVERSATIONS)
        }

    def answer(self, number: int) -> tuple[str, str]:
        return f"event-{number}", f"Logged: {_words(number)} bpm."

    def rage(self) -> None:
        with ThreadPoolExecutor(CONVERSATIONS) as pool:
            talks = [pool.submit(self._talk, *talk) for talk in self.conversations.items()]
            for answered, fault in self._plan():
                self.wait_answered(answered)
                fault()
            for talk in talks:
                talk.result()
        self.wait_answered(self.messages)

    def speak(self) -> None:
        """All conversations at once, and nothing goes wrong by itself."""
        with ThreadPoolExecutor(CONVERSATIONS) as pool:
            for talk in [pool.submit(self._talk, *one) for one in self.conversations.items()]:
                talk.result()

    # -- what comes in ---------------------------------------------------------------------------

    def _talk(self, thread: str, numbers: list[int]) -> None:
        chance = random.Random(f"{self._seed} {thread}")
        for number in numbers:
            event, text = f"event-{number}", _words(number)
            taken = self.fleet.say("sure", event, text, thread)
            with self._lock:
                self._taken += 1
            if chance.random() < REPEATS:
                again = self.fleet.say("sure", event, text, thread)
                assert again["request_id"] == taken["request_id"]
                assert again["duplicate"]

    # -- what goes wrong -------------------------------------------------------------------------

    def _plan(self) -> list[tuple[int, Callable[[], None]]]:
        faults = [
            *(self._kill for _ in range(6)),
            self._kill_database,
            self._kill_database,
            lambda: self.freeze(*self._random.sample(ON_THE_ROAD, len(ON_THE_ROAD))),
            self._stay_away,
        ]
        self._random.shuffle(faults)
        last = self.messages * 9 // 10
        return list(zip(sorted(self._random.sample(range(last), len(faults))), faults, strict=True))

    def _kill(self) -> None:
        name = self._random.choice(ON_THE_ROAD)
        self._note(f"killed {name}")
        self.fleet.kill(name)
        self.fleet.start(name)

    def _kill_database(self) -> None:
        pid = EmbeddedPostgres(self.fleet.home).pid
        if pid is None:  # it has not come back from the last time yet
            return
        self._note("killed the database")
        os.kill(pid, signal.SIGKILL)

    def _stay_away(self) -> None:
        """The Messenger is down while a good part of the messages comes in."""
        self._note("stopped messenger")
        self.fleet.stop("messenger")
        enough = min(self.messages, self._taken + self.messages // 10)
        wait_for("messages to pile up", lambda: self._taken >= enough, BREATH_S)
        self.fleet.start("messenger")

    def freeze(self, *names: str) -> None:
        """One of them is frozen past its leases, another takes over, and then the first one goes on."""
        for name in names:
            self.fleet.wait_healthy(name)
        name, held = wait_for("one to be at work", lambda: self._freeze_at_work(names), BREATH_S)
        self._note(f"froze {name} over {len(held)} items")
        with self._stand_in(name):
            wait_for("its items to be taken over", lambda: not self._still(name, held), BREATH_S)
            self.fleet.processes[name].send_signal(signal.SIGCONT)
            self.wait_answered(min(self.messages, len(self.fleet.answers()) + CONVERSATIONS))

    def _freeze_at_work(self, names: tuple[str, ...]) -> tuple[str, Held] | None:
        """The first of them that holds something; whoever is idle goes on at once."""
        for name in names:
            process = self.fleet.processes[name]
            process.send_signal(signal.SIGSTOP)
            leased = f"SELECT id, fence FROM {name}.queue_items WHERE state = 'leased'"
            if found := [(row["id"], row["fence"]) for row in self.fleet.rows(leased)]:
                return name, found
            process.send_signal(signal.SIGCONT)
        return None

    def _still(self, name: str, held: Held) -> bool:
        same = (
            f"SELECT FROM {name}.queue_items AS item"
            " JOIN unnest($1::uuid[], $2::bigint[]) AS held(id, fence) USING (id, fence)"
            " WHERE item.state = 'leased'"
        )
        return bool(self.fleet.rows(same, [one for one, _ in held], [fence for _, fence in held]))

    @contextmanager
    def _stand_in(self, name: str) -> Iterator[None]:
        """The same butler once more, at another port."""
        folder = self.fleet.home / "stand-in" / name
        usual = self.fleet.folders.get(name, ROOT / "roster" / name)
        shutil.copytree(usual, folder, dirs_exist_ok=True)
        file = folder / "butler.toml"
        file.write_text(re.sub(r"(?m)^port = \d+", f"port = {STAND_IN_PORT}", file.read_text()))
        stand_in = f"{name}, standing in"
        self.fleet.folders[stand_in] = folder
        self.fleet.start(stand_in)
        try:
            yield
        finally:
            self.fleet.stop(stand_in)

    def wait_answered(self, number: int) -> None:
        while (found := len(self.fleet.answers())) < number:
            what = f"more than {found} answers, after {self.happened[-1:]}"
            wait_for(what, lambda found=found: len(self.fleet.answers()) > found, BREATH_S)

    def _note(self, what: str) -> None:
        self.happened.append(f"{what} after {len(self.fleet.answers())} answers")


def _words(number: int) -> str:
    return f"pulse {40 + number % 180}"  # values that are plausible
