"""Connectors: health of each way that messages come in and go out, and how to connect another one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.views import Site
from butlers.domain.errors import ButlersError
from butlers.domain.queues import MESSENGER, SWITCHBOARD

router = APIRouter()


@dataclass(frozen=True, slots=True)
class ConnectGuide:
    """Steps that connect a channel, for the page."""

    title: str
    needs: str
    command: str
    then: str


GUIDES = (
    ConnectGuide(
        "Telegram",
        "A bot of your own: write /newbot to @BotFather in Telegram. It gives you a token.",
        "butlers connect telegram",
        "It asks for the token, shows a code, and pairs the bot with the account that sends it.",
    ),
    ConnectGuide(
        "Email",
        "An app password of your mailbox (Gmail, Outlook, Fastmail, iCloud, Proton), or its"
        " IMAP and SMTP servers.",
        "butlers connect email you@example.org",
        "It asks for the password and ends with a mail that the mailbox sends to itself.",
    ),
    ConnectGuide(
        "Webhook",
        "A program that can send and receive JSON over HTTP, and a shared secret.",
        "butlers secrets set PHONE_SECRET",
        "Then add it to butlers/switchboard.toml and butlers/messenger.toml, as docs/configuration.md shows.",
    ),
)


@router.get("/connectors")
async def connectors(request: Request) -> Response:
    site = Site.of(request)
    answers: tuple[Any, Any] = await asyncio.gather(
        site.fleet.call(SWITCHBOARD, "connectors_list"),
        site.fleet.call(MESSENGER, "messenger_status"),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, ButlersError):
            raise answer
    found, outgoing = answers
    return site.render(request, "connectors.html", found=found, outgoing=outgoing, guides=GUIDES)
