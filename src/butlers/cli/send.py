"""``butlers send``: one message in through the Switchboard, on the console channel."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated
from uuid import UUID

import typer

from butlers.cli.clients import owner_client
from butlers.cli.output import print_json
from butlers.config.settings import Settings
from butlers.connectors.console import ConsoleConnector, Reply
from butlers.domain.errors import ButlersError, InvalidMessage


class NoReply(ButlersError):
    """No reply came in time."""

    code = "no_reply"


def send(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the reply and print it.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the reply.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say something to your butlers."""
    message = _read_stdin() if text == "-" else text
    request_id, replies = asyncio.run(_send(Settings.from_environ(), message, wait, timeout))
    if as_json:
        print_json(
            {
                "request_id": str(request_id),
                "replies": [{"origin": r.origin, "message": r.message} for r in replies],
            }
        )
    elif wait:
        for reply in replies:
            typer.echo(reply.message)
    else:
        typer.echo(str(request_id))
    if wait and not replies:
        raise NoReply(
            f"no reply within {timeout:g} s; the message is kept as {request_id}",
            hint="`butlers status` shows what is waiting",
        )


async def _send(
    settings: Settings, text: str, wait: bool, timeout_s: float
) -> tuple[UUID, list[Reply]]:
    async with (
        owner_client(settings, "switchboard") as switchboard,
        owner_client(settings, "messenger") as messenger,
    ):
        console = ConsoleConnector(switchboard, messenger)
        request_id = await console.send(text)
        if not wait:
            return request_id, []
        async for reply in console.replies(request_id, timeout_s):
            return request_id, [reply]
        return request_id, []


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidMessage(
            f"the message is not valid UTF-8 at byte {error.start}", hint="send UTF-8 text"
        ) from None
