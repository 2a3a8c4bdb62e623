"""Codex, booted before its prompt is known.

``codex app-server`` reads the same configuration as ``codex exec`` and is spoken to in JSON-RPC by stdin.
What it boots (its binary, its files, the butler's connection) is ready before the message. Only a thread's
start takes the system prompt, in some fifty milliseconds: one is started beforehand with the prompt that is
expected, and another with the message where that is not the one. Whatever this protocol does that it should
not, the process is given up, and a cold one thinks instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from butlers import __version__
from butlers.domain.session import SessionResult
from butlers.process.runner import Event, ProcessCommand, TimeLimits
from butlers.runtimes.base import McpServer, NotWarm
from butlers.runtimes.codex.command import told_server
from butlers.runtimes.codex.notices import Notices
from butlers.runtimes.codex.transcript import CodexTranscript
from butlers.runtimes.dialogue import Dialogue
from butlers.runtimes.shapes import mapping, mappings, text

BOOT_S = 30.0
TURN = "turn"  # the number of the one request whose answer nobody waits for
NOBODY_ANSWERS = {"code": -32601, "message": "nobody is here to answer"}

Prepare = Callable[[], Awaitable[ProcessCommand]]


class WarmCodex:
    def __init__(self, prepare: Prepare, butler: str, model: str | None) -> None:
        """``prepare`` writes its files: the program has to be asked for its models first."""
        self._prepare = prepare
        self._butler = butler
        self._model = model
        self._notices = Notices()
        self._transcript = CodexTranscript(butler)
        self._dialogue: Dialogue | None = None
        self._asked = False
        self._expected: tuple[str, Mapping[str, Any]] | None = None  # a prompt, and its thread
        self._refused: str | None = None

    @property
    def alive(self) -> bool:
        return self._dialogue is not None and self._dialogue.alive

    async def boot(self, expected: str | None = None) -> None:
        await self._begin()
        asked = {"serverName": self._butler, "detail": "toolsAndAuthOnly"}
        status = await self._request("mcpServerStatus/list", asked, BOOT_S)
        if not any(_reached(server) for server in mappings(status.get("data"))):
            raise NotWarm(f"it did not reach {self._butler}")
        if expected is not None:
            self._expected = expected, await self._start_thread(expected, {})

    async def _begin(self) -> None:
        self._dialogue = Dialogue(await self._prepare(), self._read)
        self._dialogue.begin()
        client = {"name": "butlers", "title": "Butlers", "version": __version__}
        await self._request("initialize", {"clientInfo": client}, BOOT_S)
        self._dialogue.say({"method": "initialized"})

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        if self._dialogue is None or not self.alive or self._asked:
            raise NotWarm("it is gone")
        thread = await self._thread(system_prompt, limits)
        self._asked = True
        message = {"type": "text", "text": _encodable(prompt)}
        turn = {"threadId": mapping(thread.get("thread")).get("id"), "input": [message]}
        try:
            ended = await self._dialogue.tell(
                {"id": TURN, "method": "turn/start", "params": turn}, limits
            )
        finally:
            await self.close()
        if self._refused is not None:  # so nothing was asked
            raise NotWarm(f"it refused turn/start: {self._refused}")
        result = self._transcript.result(ended)
        return replace(result, model=text(thread.get("model")) or self._model)

    async def close(self) -> None:
        if self._dialogue is not None:
            await self._dialogue.close()

    async def _thread(self, system_prompt: str, limits: TimeLimits) -> Mapping[str, Any]:
        if self._expected is not None and self._expected[0] == system_prompt:
            return self._expected[1]
        return await self._start_thread(system_prompt, {})

    async def _start_thread(
        self, system_prompt: str, config: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        asked: dict[str, Any] = {"ephemeral": True, "config": config}
        if self._model:
            asked["model"] = self._model
        if system_prompt.strip():
            asked["baseInstructions"] = _encodable(system_prompt)
        thread = await self._request("thread/start", asked)
        sealed = mapping(thread.get("sandbox")).get("type") == "readOnly"
        if not sealed or thread.get("approvalPolicy") != "never":
            raise NotWarm("its thread is not sealed")
        return thread

    async def _request(
        self, method: str, params: Mapping[str, Any], patience_s: float | None = None
    ) -> Mapping[str, Any]:
        assert self._dialogue is not None
        answer = await self._dialogue.ask(
            method, lambda number: {"id": number, "method": method, "params": params}, patience_s
        )
        if "result" not in answer:
            raise NotWarm(f"it refused {method}: {_why(answer)}")
        return mapping(answer.get("result"))

    def _read(self, event: Event) -> bool:
        assert self._dialogue is not None
        if "method" not in event:
            last = self._hear_answer(event)
        elif "id" in event:
            self._dialogue.say({"id": event["id"], "error": NOBODY_ANSWERS})
            last = False
        else:
            said = self._notices.event(event)
            last = said is not None and self._transcript.read(said)
        if last:
            self._dialogue.hang_up()
        return last

    def _hear_answer(self, answer: Event) -> bool:
        """True when it is the refusal of the turn: then no news will follow."""
        assert self._dialogue is not None
        if answer.get("id") == TURN and "error" in answer:
            self._refused = _why(answer)
            return True
        self._dialogue.answered(answer.get("id"), answer)
        return False


class BlankCodex(WarmCodex):
    """One that knows no butler while it waits: server and token come with its thread, by stdin."""

    def __init__(self, prepare: Prepare, model: str | None) -> None:
        super().__init__(prepare, "", model)
        self._server: McpServer | None = None

    async def boot(self, expected: str | None = None) -> None:
        await self._begin()

    async def meet(self, mcp_servers: Mapping[str, McpServer]) -> None:
        """Only taken down: it reaches it when its thread starts, or the thread does not start."""
        ((self._butler, self._server),) = mcp_servers.items()
        self._transcript = CodexTranscript(self._butler)

    async def _thread(self, system_prompt: str, limits: TimeLimits) -> Mapping[str, Any]:
        if self._server is None:
            raise NotWarm("it was told no butler")
        told = told_server(self._butler, self._server, limits)
        return await self._start_thread(system_prompt, told)


def _reached(server: Mapping[str, Any]) -> bool:
    return bool(mapping(server.get("serverInfo"))) and not server.get("toolsError")


def _why(answer: Mapping[str, Any]) -> str:
    return text(mapping(answer.get("error")).get("message")) or "no reason given"


def _encodable(said: str) -> str:
    """Half a surrogate pair can be written in JSON, and not be read by who takes it for UTF-8."""
    return said.encode("utf-8", "replace").decode()
