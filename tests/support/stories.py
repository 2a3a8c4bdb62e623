"""Stories: messages in, replies and rows out, told to one fleet of all butlers at a given time.

A story file (``tests/e2e/stories/*.toml``) is a list of stories::

    [[story]]
    name = "milk is added and taken back"
    now = 2026-05-06T12:00:00+02:00

    [[story.step]]
    say = "add milk to shopping"
    reply = "Added to shopping: milk."       # the whole reply, or:
    contains = ["milk"]                      # texts in the reply
    lacks = ["eggs"]                         # texts that are not in it

    [[story.step]]
    after = "10 minutes"                     # the clock moves, and what is due runs
    arrives = "stretch"                      # a message that nobody asked for now

    [[story.step]]
    sql = "SELECT title FROM general.list_items"
    rows = [["milk"]]                        # values as text; null is ""

Each story has its own conversation, and all records are empty when it begins. The zone is Europe/Berlin.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import threading
import tomllib
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from butlers.channels.console.connector import ConsoleConnector
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.database import Login
from butlers.db.provision import Provisioner
from butlers.skills.reflexes.times import read_seconds
from butlers.wire.tokens import FleetKey
from support.in_process import InProcessButler
from support.messages import envelope
from support.prepared import SHIPPED, copied, make_template
from support.tester_folder import copy_roster

PATIENCE_S = 60.0
ROWS_WITHIN_S = 20.0  # what runs in the background, such as a job, may take a moment
ZONE = "Europe/Berlin"
STORIES = Path(__file__).parents[1] / "e2e" / "stories"
Story = dict[str, Any]
T = TypeVar("T")


def all_stories(folder: Path = STORIES) -> list[tuple[str, Story]]:
    """Return the stories of all files of a folder, each with an id."""
    return [
        (f"{file.stem}: {story['name']}", story)
        for file in sorted(folder.glob("*.toml"))
        for story in tomllib.loads(file.read_text())["story"]
    ]


class OffsetClock:
    """Runs with the real time, from the moment that a story sets."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        return asyncio.get_event_loop().time()

    def set(self, now: datetime) -> None:
        self._ahead = now - datetime.now(UTC)

    def move(self, by: timedelta) -> None:
        self._ahead += by


class StoryFleet:
    """All shipped butlers in one thread of the test's process, with one clock."""

    def __init__(self, admin: Login, key: FleetKey, names: Sequence[str] = SHIPPED) -> None:
        self.clock = OffsetClock()
        self._admin, self._key, self._names = admin, key, names
        self._folder = Path(tempfile.mkdtemp(prefix="bs-"))
        self._database = f"stories_{secrets.token_hex(4)}"
        self._butlers: dict[str, InProcessButler] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self) -> None:
        self._thread.start()
        self._run(self._open())

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def tell(self, story: Story) -> None:
        """Tell one story; raise AssertionError at the first step that went otherwise."""
        self._run(self._tell(story))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    # -- the fleet -------------------------------------------------------------------------------

    async def _open(self) -> None:
        template = await make_template(self._admin, self._key)
        async with copied(self._admin, template, self._database):
            pass
        switchboard = await self._start("switchboard")
        others = [name for name in self._names if name != "switchboard"]
        started = await asyncio.gather(*(self._start(name, switchboard.url) for name in others))
        for butler in started:
            assert butler.registrar is not None
            await asyncio.wait_for(butler.registrar.registered.wait(), PATIENCE_S)

    async def _start(self, name: str, switchboard_url: str | None = None) -> Butler:
        folder = self._folder / name
        copy_roster(name, folder, self._database)
        text = (folder / "butler.toml").read_text()
        text = text.replace("[butler]\n", f'[butler]\ntimezone = "{ZONE}"\n', 1)
        if switchboard_url:
            text = text.replace(
                "[butler.switchboard]\n", f'[butler.switchboard]\nurl = "{switchboard_url}"\n', 1
            )
        (folder / "butler.toml").write_text(self._configured(name, text))
        provisioner = Provisioner(self._admin, self._key, shared_database=self._database)
        made = InProcessButler(folder, self._folder / "home", self._key, provisioner)
        butler = made.make(clock=self.clock, settings=self._settings())
        self._butlers[name] = made
        await butler.start()
        return butler

    def _configured(self, name: str, text: str) -> str:
        """Return the butler.toml of a butler."""
        return text

    def _settings(self) -> Settings:
        return Settings(self._folder / "home")

    async def _close(self) -> None:
        for made in reversed(self._butlers.values()):
            for butler in made.butlers:
                await butler.stop()
        connection = await asyncpg.connect(**self._admin.arguments("tests"))
        await connection.execute(f'DROP DATABASE IF EXISTS "{self._database}" WITH (FORCE)')
        await connection.close()

    # -- a story ---------------------------------------------------------------------------------

    async def _tell(self, story: Story) -> None:
        await self._forget()
        self.clock.set(story["now"])
        if any("after" in step for step in story["step"]):
            await self._plan_schedules()
        thread = secrets.token_hex(4)
        switchboard, messenger = self._butlers["switchboard"], self._butlers["messenger"]
        async with switchboard.owner() as inbox, messenger.owner() as mailbox:
            console = ConsoleConnector(inbox, mailbox, self.clock)
            for number, step in enumerate(story["step"], 1):
                where = f"step {number} of {story['name']!r}"
                if "after" in step:
                    await self._pass_time(step["after"])
                if "say" in step:
                    _check_text(where, step, await self._say(console, inbox, step, thread))
                if "arrives" in step:
                    mail = await console.receive(None, PATIENCE_S)
                    await console.shown(mail)
                    said = "\n".join(one.message for one in mail)
                    assert step["arrives"] in said, f"{where}: {said!r}"
                if "sql" in step:
                    await self._check_rows(where, step)

    async def _say(
        self, console: ConsoleConnector, inbox: Any, step: dict[str, Any], thread: str
    ) -> str:
        event = {"external_thread_id": thread, "observed_at": self.clock.now().isoformat()}
        accepted = await inbox.call("ingest", envelope(step["say"], event=event))
        replies = await console.receive(UUID(accepted["request_id"]), PATIENCE_S)
        await console.shown(replies)
        return "\n".join(reply.message for reply in replies)

    async def _pass_time(self, words: str) -> None:
        seconds = read_seconds(words)
        assert seconds, f"{words!r} is no duration"
        self.clock.move(timedelta(seconds=seconds))
        for made in self._butlers.values():
            async with made.owner() as owner:
                await owner.call("tick", {})

    async def _plan_schedules(self) -> None:
        """Let the schedules of butler.toml find their next time again, from the story's time on."""
        for made in self._butlers.values():
            async with made.owner() as owner:
                for one in (await owner.call("schedule_list", {"runs": 0}))["schedules"]:
                    for enabled in (False, True):
                        await owner.call("schedule_update", {"id": one["id"], "enabled": enabled})

    async def _check_rows(self, where: str, step: dict[str, Any]) -> None:
        deadline = asyncio.get_running_loop().time() + ROWS_WITHIN_S
        while True:
            rows = await self._butlers["switchboard"].rows(step["sql"])
            found = [
                ["" if value is None else str(value) for value in row.values()] for row in rows
            ]
            if found == step["rows"]:
                return
            assert asyncio.get_running_loop().time() < deadline, f"{where}: {found}"
            await asyncio.sleep(0.02)

    async def _forget(self) -> None:
        """Empty the record tables of all butlers, and delete reminders."""
        for name, made in self._butlers.items():
            tables = [row["name"] for row in await made.rows("SELECT name FROM record_tables")]
            listed = ", ".join(f'{name}."{table}"' for table in (*tables, "record_changes"))
            await made.rows(f"TRUNCATE {listed} CASCADE")
            await made.rows("DELETE FROM scheduled_tasks WHERE source = 'db'")


def _check_text(where: str, step: dict[str, Any], said: str) -> None:
    assert "reply" not in step or said == step["reply"], f"{where}: {said!r}"
    for text in step.get("contains", ()):
        assert text in said, f"{where}: {text!r} is not in {said!r}"
    for text in step.get("lacks", ()):
        assert text not in said, f"{where}: {text!r} is in {said!r}"
