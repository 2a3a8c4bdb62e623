"""Codex as a warm process.

``codex app-server`` reads the same configuration as ``codex exec`` and takes JSON-RPC requests by stdin. Its
binary, its files and the connection to the butler are ready before the message. The system prompt is set
when a thread starts, which takes some fifty milliseconds: a thread is started in advance with the expected
prompt, and another one with the message if the prompt differs. If the protocol does anything unexpected,
the process is given up and the session starts cold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from butlers import __version__
from butlers.domain.session import SessionResult
from butlers.process.runner import Event, ProcessCommand, TimeLimits
from butlers.runtimes.base import McpServer, NotWarm
from butlers.runtimes.codex.command import server_config
from butlers.runtimes.codex.transcript import CodexTranscript, Notices
from butlers.runtimes.dialogue import Dialogue
from butlers.runtimes.formats import mapping, mappings, text

BOOT_S = 30.0
TURN = "turn"  # number of the request whose answer is not awaited
UNANSWERED = {"code": -32601, "message": "no user is present to answer"}

Prepare = Callable[[], Awaitable[ProcessCommand]]


class WarmCodex:
    def __init__(self, prepare: Prepare, butler: str | None, model: str | None) -> None:
        """``butler``: the one that it connects to while it boots; None: ``connect`` names it.

        ``prepare`` writes its files, after asking the program for its models.
        """
        self._prepare = prepare
        self._butler = butler
        self._model = model
        self._notices = Notices()
        self._transcript = CodexTranscript(butler or "")
        self._server: tuple[str, McpServer] | None = None  # set by ``connect``
        self._dialogue: Dialogue | None = None
        self._asked = False
        self._expected: tuple[str, Mapping[str, Any]] | None = None  # a prompt, and its thread
        self._refused: str | None = None

    @property
    def alive(self) -> bool:
        return self._dialogue is not None and self._dialogue.alive

    async def boot(self, expected: str | None = None) -> None:
        await self._begin()
        if self._butler is None:
            return
        asked = {"serverName": self._butler, "detail": "toolsAndAuthOnly"}
        status = await self._request("mcpServerStatus/list", asked, BOOT_S)
        if not any(_reached(server) for server in mappings(status.get("data"))):
            raise NotWarm(f"the process did not reach {self._butler}")
        if expected is not None:
            self._expected = expected, await self._start_thread(expected, {})

    async def connect(self, mcp_servers: Mapping[str, McpServer]) -> None:
        """Keep the server for the thread, which starts only if it reaches it."""
        (self._server,) = mcp_servers.items()
        if self._dialogue is not None:
            await self._dialogue.reach(self._server[1].url)
        self._transcript = CodexTranscript(self._server[0])

    async def _begin(self) -> None:
        self._dialogue = Dialogue(await self._prepare(), self._read)
        self._dialogue.begin()
        client = {"name": "butlers", "title": "Butlers", "version": __version__}
        await self._request("initialize", {"clientInfo": client}, BOOT_S)
        self._dialogue.say({"method": "initialized"})

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        if self._dialogue is None or not self.alive or self._asked:
            raise NotWarm("the process exited")
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
        if self._refused is not None:  # nothing was asked
            raise NotWarm(f"the process refused turn/start: {self._refused}")
        result = self._transcript.result(ended)
        return replace(result, model=text(thread.get("model")) or self._model)

    async def close(self) -> None:
        if self._dialogue is not None:
            await self._dialogue.close()

    async def _thread(self, system_prompt: str, limits: TimeLimits) -> Mapping[str, Any]:
        if self._expected is not None and self._expected[0] == system_prompt:
            return self._expected[1]
        config = {} if self._server is None else server_config(*self._server, limits)
        if self._butler is None and not config:
            raise NotWarm("the process was not connected to a butler")
        return await self._start_thread(system_prompt, config)

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
            raise NotWarm("the thread is not sealed")
        return thread

    async def _request(
        self, method: str, params: Mapping[str, Any], timeout_s: float | None = None
    ) -> Mapping[str, Any]:
        assert self._dialogue is not None
        answer = await self._dialogue.ask(
            method, lambda number: {"id": number, "method": method, "params": params}, timeout_s
        )
        if "result" not in answer:
            raise NotWarm(f"the process refused {method}: {_why(answer)}")
        return mapping(answer.get("result"))

    def _read(self, event: Event) -> bool:
        assert self._dialogue is not None
        if "method" not in event:
            last = self._read_answer(event)
        elif "id" in event:
            self._dialogue.say({"id": event["id"], "error": UNANSWERED})
            last = False
        else:
            translated = self._notices.event(event)
            last = translated is not None and self._transcript.read(translated)
        if last:
            self._dialogue.hang_up()
        return last

    def _read_answer(self, answer: Event) -> bool:
        """Return True if the turn was refused: then no events follow."""
        assert self._dialogue is not None
        if answer.get("id") == TURN and "error" in answer:
            self._refused = _why(answer)
            return True
        self._dialogue.answered(answer.get("id"), answer)
        return False


def _reached(server: Mapping[str, Any]) -> bool:
    return bool(mapping(server.get("serverInfo"))) and not server.get("toolsError")


def _why(answer: Mapping[str, Any]) -> str:
    return text(mapping(answer.get("error")).get("message")) or "no reason given"


def _encodable(text: str) -> str:
    """Replace lone surrogates: JSON can hold them, but readers of UTF-8 reject them."""
    return text.encode("utf-8", "replace").decode()
