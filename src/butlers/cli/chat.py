"""``butlers chat``: talk to the butlers in a terminal, or with lines from a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.fleet import owner_client, running_butlers
from butlers.cli.output import print_message, print_text
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError
from butlers.domain.queues import MESSENGER, SWITCHBOARD

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer

POLL_S = 20.0
RETRY_S = 1.0
LEAVE = frozenset(("exit", "quit", "/quit", "/exit", "bye"))
OWN_WORDS = ("help", "undo", "/status", "/pause", "/resume", "/stop", "exit")
GREETING = "Type a message; “help” shows examples, “undo” takes back, Tab completes, Ctrl-D leaves."


def chat(
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait for each reply if input is a pipe.", min=0, max=3600),
    ] = 60.0,
) -> None:
    """Talk to your butlers. Replies and reminders appear when they come.

    With input from a pipe, each line is one message, and its reply is printed before the next is sent.
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    settings = Settings.from_environ()
    asyncio.run(_interactive(settings) if interactive else _piped(settings, timeout))


@dataclass
class Conversation:
    """Messages that were sent and not answered yet, and the last problem with the connection."""

    console: ConsoleConnector
    waiting: set[UUID] = field(default_factory=set)
    problem: str | None = None

    async def send(self, text: str) -> UUID | None:
        """Send a message. Return its request id, or None after printing why it was not sent."""
        try:
            request_id = await self.console.send(text)
        except ButlersError as error:
            print_message("error", error.message)
            if error.hint:
                print_message("hint", error.hint)
            return None
        self.waiting.add(request_id)
        return request_id

    async def show(self, replies: list[Reply]) -> None:
        for reply in replies:
            answered = reply.request_id in self.waiting
            print_text(
                reply.message if answered else f"* {reply.message}", indent=0 if answered else 2
            )
            self.waiting.discard(reply.request_id)
        if replies:
            await self.console.shown(replies)

    async def receive_forever(self, changed: Any) -> None:
        """Print whatever arrives: replies, late replies and reminders."""
        while True:
            try:
                await self.show(await self.console.receive(None, POLL_S))
                self.problem = None
            except ButlersError as error:
                self.problem = error.message
                await asyncio.sleep(RETRY_S)
            changed()

    def status_line(self) -> str:
        if self.problem:
            return f" {self.problem}; trying again"
        if self.waiting:
            return (
                f" waiting for {len(self.waiting)} answer{'s' if len(self.waiting) > 1 else ''} …"
            )
        return " help · undo · Tab completes · Ctrl-D leaves"


@asynccontextmanager
async def _conversation(settings: Settings) -> AsyncIterator[Conversation]:
    async with (
        owner_client(settings, SWITCHBOARD) as switchboard,
        owner_client(settings, MESSENGER) as messenger,
    ):
        yield Conversation(ConsoleConnector(switchboard, messenger))


async def _piped(settings: Settings, timeout_s: float) -> None:
    """Send each line and print its reply."""
    async with _conversation(settings) as conversation:
        failed = False
        for line in sys.stdin:
            text = line.strip()
            if text.casefold() in LEAVE:
                break
            request_id = await conversation.send(text) if text else None
            if request_id is None:
                failed = failed or bool(text)
                continue
            replies = await conversation.console.receive(request_id, timeout_s)
            if not replies:
                print_message("warning", f"no reply to {text!r} within {timeout_s:g} s")
                failed = True
            await conversation.show(replies)
        await conversation.show(await conversation.console.receive(None, 0))
    if failed:
        raise typer.Exit(1)


async def _interactive(settings: Settings) -> None:
    from prompt_toolkit.patch_stdout import patch_stdout

    examples = await _examples(settings)
    async with _conversation(settings) as conversation:
        session = _prompt_session(settings, conversation, examples)
        print_text(GREETING)
        with patch_stdout(raw=True):
            receiving = asyncio.create_task(conversation.receive_forever(session.app.invalidate))
            try:
                await _read_lines(session, conversation)
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)


async def _read_lines(session: PromptSession[str], conversation: Conversation) -> None:
    while True:
        try:
            text = (await session.prompt_async()).strip()
        except KeyboardInterrupt:
            continue  # discards the line, as in a shell
        except EOFError:
            return
        if text.casefold() in LEAVE:
            return
        if text:
            await conversation.send(text)


async def _examples(settings: Settings) -> list[str]:
    """Return the examples of the butlers that answer; completion does without the others."""

    async def ask(name: str) -> list[str]:
        try:
            async with owner_client(settings, name) as butler:
                answer = await butler.call("reflex_list", timeout_s=5)
        except ButlersError:
            return []
        return [text for reflex in answer["reflexes"] for text in reflex["examples"]]

    found = await asyncio.gather(*(ask(name) for name in running_butlers(settings)))
    return [*OWN_WORDS, *(text for texts in found for text in texts)]


def _prompt_session(
    settings: Settings, conversation: Conversation, examples: list[str]
) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.history import FileHistory

    history = settings.home / "chat_history"
    history.touch(mode=0o600)
    return PromptSession(
        "> ",
        history=FileHistory(str(history)),
        auto_suggest=AutoSuggestFromHistory(),
        completer=_completer(examples),
        complete_while_typing=False,
        bottom_toolbar=conversation.status_line,
        refresh_interval=0.5,
    )


def _completer(examples: list[str]) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class ExampleCompleter(Completer):
        """Completes a whole line to an example that starts with it, or contains all its words."""

        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterable[Completion]:
            typed = document.text_before_cursor
            for text in completions(typed, examples):
                yield Completion(text, start_position=-len(typed))

    return ExampleCompleter()


def completions(typed: str, examples: Iterable[str]) -> list[str]:
    """Return the examples that continue the typed text, or else those that contain all its words."""
    start, words = typed.casefold().lstrip(), typed.casefold().split()
    known = list(dict.fromkeys(examples))
    return [text for text in known if text.casefold().startswith(start)] or [
        text for text in known if all(word in text.casefold() for word in words)
    ]
