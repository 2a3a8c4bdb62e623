"""Stories on the real CLIs: as ``stories``, with a fake model that does what a step says.

A step that needs a model (``tests/e2e/stories/models/*.toml``) also has::

    say = "no, 81"
    for = "health"                           # the butler that the Switchboard's model chooses
    calls = [{ tool = "measurement_correct", args = { type = "weight", value = 81 } }]
    answer = "$text"                         # what the model tells the person

A message for several butlers has ``parts``, each with ``for``, ``part``, ``calls`` and ``answer``.
A value "$name" is the field of that name in the newest tool result that has one. Each butler has one of the
three CLIs, so that one fleet shows them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from butlers.channels.console.connector import ConsoleConnector
from butlers.config.settings import Settings
from butlers.db.database import Login
from butlers.wire.tokens import FleetKey
from support import npm
from support.cli_butler import ENVIRONMENT
from support.cli_session import PATH
from support.clis import CLAUDE, CLIS, CODEX, GEMINI
from support.fake_model import FakeModel, Say, Script, Turn, Use, fake_model
from support.offline import isolated
from support.stories import STORIES, StoryFleet

MODEL_STORIES = STORIES / "models"
RUNTIMES = {
    "switchboard": CLAUDE,
    "general": CLAUDE,
    "health": CLAUDE,
    "finance": CODEX,
    "relationship": GEMINI,
    "travel": GEMINI,
}
ASSIGN = "assign"  # the tool of a classification


class ModelStoryFleet(StoryFleet):
    """All shipped butlers, each with a real CLI, and one fake model behind them."""

    model: FakeModel

    def __init__(self, admin: Login, key: FleetKey) -> None:
        super().__init__(admin, key)
        self._step: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    async def _open(self) -> None:
        self.model = await self._stack.enter_async_context(fake_model())
        self.model.choose = self._script
        await super()._open()

    async def _close(self) -> None:
        await super()._close()
        await self._stack.aclose()

    def _configured(self, name: str, text: str) -> str:
        cli = RUNTIMES.get(name)
        if cli is None:
            return text
        text = text.replace('type = "auto"', f'type = "{cli.name}"', 1)
        text = text.replace("[butler.runtime]\n", f'[butler.runtime]\nmodel = "{cli.model}"\n', 1)
        return text if "[butler.env]" in text else f"{text}\n{ENVIRONMENT}"

    def _settings(self) -> Settings:
        given = {"PATH": f"{npm.installed('clis')}:{PATH}"}
        for cli in CLIS:
            given |= cli.environment(self.model.url)
        return Settings(self._folder / "home", environ=MappingProxyType(given))

    async def _say(
        self, console: ConsoleConnector, inbox: Any, step: dict[str, Any], thread: str
    ) -> str:
        self._step = step
        answered = await super()._say(console, inbox, step, thread)
        for one in _parts(step):
            rows = await self._butlers[one["for"]].rows(
                "SELECT runtime FROM sessions WHERE prompt = $1 ORDER BY started_at DESC LIMIT 1",
                one["part"],
            )
            assert [row["runtime"] for row in rows] == [RUNTIMES[one["for"]].name]
        return answered

    def _script(self, turn: Turn) -> Script | None:
        """Return what the model does in a session for the message of this step."""
        parts, lines = _parts(self._step), turn.user.splitlines()
        if turn.find(ASSIGN) and self._step["say"] in lines:
            return [*(_assignment(one, alone=len(parts) == 1) for one in parts), Say("Assigned.")]
        for one in parts:
            if one["part"] in lines:
                calls = [Use(c["tool"], **_filled(c.get("args", {}), turn)) for c in one["calls"]]
                answer = Use("notify", message=_filled(one["answer"], turn), intent="reply")
                return [*calls, answer, Say("Done.")]
        return None  # a session of its own, such as a consolidation


@contextmanager
def model_story_fleet(admin: Login, key: FleetKey) -> Iterator[ModelStoryFleet]:
    """A fleet without a network, as the CLIs that it starts."""
    npm.installed("clis")
    with isolated():
        fleet = ModelStoryFleet(admin, key)
        fleet.open()  # its thread begins in the network of this one
        try:
            yield fleet
        finally:
            fleet.close()


def _filled(value: Any, turn: Turn) -> Any:
    """Replace each "$name" by the field of that name in the newest tool result that has one."""
    if isinstance(value, dict):
        return {key: _filled(one, turn) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, turn) for one in value]
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    found = (_field(result, value[1:]) for result in reversed(turn.results))
    return next((one for one in found if one is not None), "not known yet")


def _field(result: Any, name: str) -> Any:
    """Return the outermost field of that name. A CLI may wrap a result into words or JSON of its own."""
    level = [result]
    while level:
        level = [_parsed(one) for one in level]
        for one in level:
            if isinstance(one, dict) and name in one:
                return one[name]
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level]
        level = [value for one in inner if isinstance(one, list) for value in one]
    return None


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or "{" not in value:
        return value
    try:
        return json.JSONDecoder().raw_decode(value, value.index("{"))[0]
    except ValueError:
        return value


def _parts(step: dict[str, Any]) -> list[dict[str, Any]]:
    if "for" in step:
        return [{**step, "part": step["say"]}]
    parts: list[dict[str, Any]] = step.get("parts", [])
    return parts


def _assignment(part: dict[str, Any], *, alone: bool) -> Use:
    more = {} if alone else {"part": part["part"]}
    return Use(ASSIGN, butler=part["for"], reason="its subject", **more)
