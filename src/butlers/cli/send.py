"""``butlers send``: one message in through the Switchboard, on the console channel."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated
from uuid import UUID

import typer

from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.clients import owner_client
from butlers.cli.output import print_json
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError, InvalidMessage


class NoReply(ButlersError):
    """No reply came in time."""

    code = "no_reply"


def send(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the reply and print it.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the reply.", min=0, max=86_400)
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say something to your butlers."""
    message = _read_stdin() if text == "-" else text
    asyncio.run(_send(Settings.from_environ(), message, timeout if wait else None, as_json))


def mail(
    wait: Annotated[float, typer.Option(help="Seconds to wait for the first.", min=0)] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what your butlers said and no console has shown yet: replies, reminders, questions."""
    asyncio.run(_mail(Settings.from_environ(), wait, as_json))


async def _mail(settings: Settings, wait_s: float, as_json: bool) -> None:
    async with (
        owner_client(settings, "switchboard") as switchboard,
        owner_client(settings, "messenger") as messenger,
    ):
        console = ConsoleConnector(switchboard, messenger)
        said: list[Reply] = []
        while fresh := await console.receive(None, 0 if said else wait_s):
            said += fresh
            if not as_json:
                for reply in fresh:
                    typer.echo(f"{reply.origin}: {reply.message}")
            await console.shown(fresh)
    if as_json:
        print_json([{"origin": reply.origin, "message": reply.message} for reply in said])


async def _send(settings: Settings, text: str, wait_s: float | None, as_json: bool) -> None:
    async with (
        owner_client(settings, "switchboard") as switchboard,
        owner_client(settings, "messenger") as messenger,
    ):
        console = ConsoleConnector(switchboard, messenger)
        request_id = await console.send(text)
        replies = [] if wait_s is None else await _wait_for_reply(console, request_id, wait_s)
        _show(request_id, replies, as_json=as_json, waited=wait_s is not None)
        if replies:
            await console.shown(replies)
    if wait_s is not None and not replies:
        raise NoReply(
            f"no reply within {wait_s:g} s; the message is kept as {request_id}",
            hint="`butlers status` shows what is waiting",
        )


async def _wait_for_reply(
    console: ConsoleConnector, request_id: UUID, wait_s: float
) -> list[Reply]:
    try:
        return await console.receive(request_id, wait_s)
    except ButlersError as error:
        raise NoReply(
            f"no reply: {error.message}; the message is kept as {request_id}",
            hint=error.hint or "`butlers status` shows what is waiting",
        ) from error


def _show(request_id: UUID, replies: list[Reply], *, as_json: bool, waited: bool) -> None:
    if as_json:
        said = [{"origin": reply.origin, "message": reply.message} for reply in replies]
        print_json({"request_id": str(request_id), "replies": said})
    elif waited:
        for reply in replies:
            typer.echo(reply.message)
    else:
        typer.echo(str(request_id))


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidMessage(
            f"the message is not valid UTF-8 at byte {error.start}", hint="send UTF-8 text"
        ) from None
