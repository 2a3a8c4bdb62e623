"""Chat with the assistant: send, follow the progress of a message, see answers and reminders arrive."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, File, Form, Query, UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.domain.errors import ButlersError, MessageTooLarge
from butlers.domain.message import CONSOLE, Attachment
from butlers.domain.queues import MESSENGER, SWITCHBOARD

router = APIRouter()

ENDPOINT = "console:dashboard"
MAX_FILE = 10 * 1024 * 1024
STEP_S = 1.0
PATIENCE_S = 180  # then the page stops following; a late answer appears all the same
EXAMPLES = (
    "weight 80.4 kg",
    "remind me in 10 minutes to stretch",
    "note: the spare key is with Alice",
    "what can you do?",
)


@router.get("/chat")
async def chat(request: Request, say: Annotated[str, Query(max_length=500)] = "") -> Response:
    """Show the conversation. ``say`` stands in the field, so that a person may edit and send it."""
    site = Site.of(request)
    answer = await site.fleet.call(
        SWITCHBOARD, "conversation_turns", channel=CONSOLE, endpoint=ENDPOINT
    )
    waiting = await _connector(site).receive(None, 0)
    await _shown(site, waiting)  # they are among the turns
    return site.render(request, "chat.html", turns=answer["turns"], examples=EXAMPLES, say=say)


@router.post("/chat")
async def send(
    request: Request,
    text: Annotated[str, Form()] = "",
    files: Annotated[list[UploadFile] | None, File()] = None,
) -> Response:
    site = Site.of(request)
    attachments = [await _attachment(file) for file in files or () if file.filename]
    sent = await _connector(site).send(text.strip(), attachments=tuple(attachments))
    turn = {"speaker": "person", "text": text.strip(), "at": site.clock.now(), "request_id": sent}
    names = [attachment.filename for attachment in attachments]
    return site.render(request, "chat_sent.html", turn=turn, files=names)


@router.get("/chat/{request_id}/events")
async def events(request: Request, request_id: UUID) -> Response:
    return StreamingResponse(_follow(request, request_id), media_type="text/event-stream")


@router.get("/chat/mail")
async def mail(request: Request) -> Response:
    """Return answers and reminders that came without being waited for."""
    site = Site.of(request)
    replies = await _connector(site).receive(None, 0)
    await _shown(site, replies)
    return site.render(request, "chat_mail.html", turns=[_turn(site, reply) for reply in replies])


@router.post("/chat/{request_id}/undo")
async def undo(request: Request, request_id: UUID) -> Response:
    """Take back what one message changed, in the butler that handled it."""
    site = Site.of(request)
    targets = {hop["butler"] for hop in await _hops(site, request_id) if hop["hop"] == "session"}
    done = [
        (await site.fleet.call(butler, "undo", request_id=str(request_id)))["text"]
        for butler in sorted(targets)
    ]
    return site.render(request, "chat_undone.html", texts=done)


async def _follow(request: Request, request_id: UUID) -> AsyncIterator[str]:
    """Yield the progress of a request, then its answer, as server-sent events."""
    site = Site.of(request)
    connector, shown, waited = _connector(site), "", 0.0
    try:
        while waited < PATIENCE_S and not await request.is_disconnected():
            replies = await connector.receive(request_id, STEP_S)
            if replies:
                turns = [_turn(site, reply) | {"request_id": request_id} for reply in replies]
                yield _event("answer", _fragment(site, "chat_mail.html", turns=turns))
                await _shown(site, replies)
                return
            waited += STEP_S
            progress = _fragment(
                site, "chat_progress.html", steps=_steps(await _hops(site, request_id))
            )
            if progress != shown:
                shown = progress
                yield _event("progress", progress)
        yield _event("answer", _fragment(site, "chat_late.html"))
    except ButlersError as error:
        yield _event("answer", _fragment(site, "notice.html", error=error))


async def _hops(site: Site, request_id: UUID) -> list[Record]:
    hops, _ = await site.fleet.list_all("request_path", "hops", request_id=str(request_id))
    return sorted(hops, key=lambda hop: str(hop["at"]))


def _steps(hops: list[Record]) -> list[str]:
    """Return the progress of a message in a person's words."""
    steps: list[str] = []
    for hop in hops:
        if hop["hop"] == "session" and hop["butler"] != SWITCHBOARD:
            steps.append(f"{hop['butler']} is working on it")
        elif hop["hop"] == "call":
            steps.append(f"{hop['butler']} used {hop.get('tool', 'a tool')}")
    return list(dict.fromkeys(steps)) or ["received"]


async def _attachment(file: UploadFile) -> Attachment:
    content = await file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise MessageTooLarge(
            f"{file.filename} is larger than {MAX_FILE // 1024 // 1024} MB",
            hint="send a smaller file",
        )
    return Attachment(
        file.content_type or "application/octet-stream",
        file.filename,
        len(content),
        content=base64.b64encode(content).decode(),
    )


def _connector(site: Site) -> ConsoleConnector:
    fleet = site.fleet
    return ConsoleConnector(
        fleet.client(SWITCHBOARD), fleet.client(MESSENGER), site.clock, endpoint=ENDPOINT
    )


async def _shown(site: Site, replies: list[Reply]) -> None:
    if replies:
        await _connector(site).shown(replies)


def _turn(site: Site, reply: Reply) -> dict[str, Any]:
    return {
        "speaker": "assistant",
        "text": reply.message,
        "origin": reply.origin,
        "at": site.clock.now(),
        "request_id": None,
    }


def _fragment(site: Site, template: str, **values: Any) -> str:
    return site.templates.get_template(template).render(**values)


def _event(name: str, html: str) -> str:
    """Return one event. JSON keeps the line ends of the text out of the event's own lines."""
    return f"event: {name}\ndata: {json.dumps(html)}\n\n"
