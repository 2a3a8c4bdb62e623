"""Turns an update of the Bot API into an envelope, or says why it is ignored.

Ids are ``<chat>:<message>`` everywhere, so that a reply finds the message that it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from butlers.channels.files import clean_filename
from butlers.domain.json_safe import text_safe
from butlers.domain.message import (
    BUTTON,
    Attachment,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
)

TELEGRAM = "telegram"
UPDATES = ("message", "edited_message", "callback_query")  # the kinds that are asked for
MAX_TEXT = 100_000  # characters; the platform allows far fewer
MAX_NAME = 200

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TelegramFile:
    """A file of a message that has to be downloaded."""

    file_id: str
    media_type: str
    filename: str | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TelegramMessage:
    """A parsed update: the envelope without its files, and the files."""

    envelope: InboundEnvelope
    files: tuple[TelegramFile, ...] = ()
    button: str | None = None  # id of the callback query to confirm

    def with_files(self, files: tuple[Attachment, ...], notes: tuple[str, ...]) -> InboundEnvelope:
        """Return the envelope with the files, and with notes about those that could not be fetched."""
        payload = self.envelope.payload
        text = "\n".join(part for part in (payload.normalized_text, *notes) if part)
        changed = replace(payload, normalized_text=text, attachments=files)
        return replace(self.envelope, payload=changed)


@dataclass(frozen=True, slots=True)
class IgnoredUpdate:
    reason: str


def update_id(update: Any) -> int | None:
    return _integer(update, "update_id")


def parse_update(update: Any) -> TelegramMessage | IgnoredUpdate:
    """Return the message of an update. Never raises, whatever the update contains."""
    if not isinstance(update, dict):
        return IgnoredUpdate("it is not an object")
    for kind in ("message", "edited_message"):
        if isinstance(message := update.get(kind), dict):
            return _message(message, edited=kind == "edited_message")
    if isinstance(query := update.get("callback_query"), dict):
        return _button(query)
    kinds = sorted(text_safe(str(name))[:40] for name in update if name != "update_id")
    return IgnoredUpdate(f"updates of the kind {', '.join(kinds)[:120] or 'none'} are not used")


def _message(message: Json, *, edited: bool) -> TelegramMessage | IgnoredUpdate:
    sender, chat = _dict(message, "from"), _dict(message, "chat")
    user, place = _integer(sender, "id"), _integer(chat, "id")
    number = _integer(message, "message_id")
    if refusal := _refuse_author(message, sender):
        return IgnoredUpdate(refusal)
    if user is None or place is None or number is None:
        return IgnoredUpdate("it has no sender, chat or message id")
    files = tuple(_files(message))
    text = _text(message)
    if not text and not files:
        return IgnoredUpdate("it has neither text nor a file")
    own_id = f"{place}:{number}"
    when = _time(message, "edit_date" if edited else "date")
    event_id = f"{own_id}:edit:{int(when.timestamp())}" if edited else own_id
    answered = _answered(message, place)
    topic = _integer(message, "message_thread_id") if message.get("is_topic_message") else None
    endpoint = f"{place}/{topic}" if topic else str(place)
    envelope = InboundEnvelope(
        Source(TELEGRAM, TELEGRAM, endpoint),
        Event(event_id, when, endpoint, own_id if edited else answered),
        Sender(str(user)),
        Payload(f"(edited) {text}" if edited else text, raw=_raw(sender, chat)),
        Control(policy_tier=PolicyTier.INTERACTIVE),
    )
    return TelegramMessage(envelope, () if edited else files)


def _refuse_author(message: Json, sender: Json) -> str | None:
    if sender.get("is_bot"):
        return "it is of another bot"
    if _dict(message, "sender_chat"):
        return "it is written in the name of a channel or a group"
    return None


def _button(query: Json) -> TelegramMessage | IgnoredUpdate:
    sender, message = _dict(query, "from"), _dict(query, "message")
    chat = _dict(message, "chat")
    user, place = _integer(sender, "id"), _integer(chat, "id")
    number, data = _integer(message, "message_id"), query.get("data")
    query_id = query.get("id")
    if user is None or place is None or number is None or sender.get("is_bot"):
        return IgnoredUpdate("the button belongs to no message of a person's chat")
    if not isinstance(data, str) or not data.strip() or not isinstance(query_id, str):
        return IgnoredUpdate("the button has no command")
    own_id = f"{place}:{number}"
    raw = {**_raw(sender, chat), BUTTON: {"message": own_id}}
    envelope = InboundEnvelope(
        Source(TELEGRAM, TELEGRAM, str(place)),
        Event(
            f"{own_id}:press:{text_safe(query_id)[:MAX_NAME]}",
            datetime.now(UTC),
            str(place),
            own_id,
        ),
        Sender(str(user)),
        Payload(text_safe(data)[:MAX_TEXT], raw=raw),
        Control(policy_tier=PolicyTier.HIGH_PRIORITY),
    )
    return TelegramMessage(envelope, button=query_id)


def _text(message: Json) -> str:
    written = message.get("text") or message.get("caption")
    text = text_safe(written)[:MAX_TEXT].strip() if isinstance(written, str) else ""
    parts = [text, *(shown for show in _SHOWN if (shown := show(message)))]
    joined = "\n".join(part for part in parts if part)
    origin = _dict(message, "forward_origin")
    if not origin:
        return joined
    # Another person's words: they must not act as a command or a reflex of the forwarder.
    quoted = "\n".join(f"> {line}" for line in joined.splitlines()) or "> (no text)"
    return f"(forwarded from {_origin_name(origin)})\n{quoted}"


def _show_voice(message: Json) -> str:
    seconds = _integer(_dict(message, "voice"), "duration")
    return f"(voice message, {seconds} s)" if seconds is not None else ""


def _show_location(message: Json) -> str:
    place = _dict(message, "location")
    latitude, longitude = place.get("latitude"), place.get("longitude")
    known = all(isinstance(one, int | float) for one in (latitude, longitude))
    return f"(location: {latitude}, {longitude})" if known else ""


def _show_contact(message: Json) -> str:
    card = _dict(message, "contact")
    parts = [_words(card, name) for name in ("first_name", "last_name", "phone_number")]
    return f"(contact: {' '.join(part for part in parts if part)})" if any(parts) else ""


def _show_sticker(message: Json) -> str:
    emoji = _words(_dict(message, "sticker"), "emoji")
    return f"(sticker {emoji})" if emoji else ""


_SHOWN: tuple[Callable[[Json], str], ...] = (
    _show_voice,
    _show_location,
    _show_contact,
    _show_sticker,
)


def _files(message: Json) -> list[TelegramFile]:
    found = []
    photos = message.get("photo")
    if isinstance(photos, list) and photos and isinstance(photos[-1], dict):
        found.append(_file(photos[-1], "image/jpeg"))  # the last size is the largest
    for kind, media_type in (
        ("voice", "audio/ogg"),
        ("audio", "audio/mpeg"),
        ("video", "video/mp4"),
        ("video_note", "video/mp4"),
        ("document", "application/octet-stream"),
    ):
        if part := _dict(message, kind):
            found.append(_file(part, media_type))
    return [file for file in found if file is not None]


def _file(part: Json, media_type: str) -> TelegramFile | None:
    file_id, claimed = part.get("file_id"), part.get("mime_type")
    if not isinstance(file_id, str) or not file_id:
        return None
    kind = text_safe(claimed)[:100] if isinstance(claimed, str) and claimed else media_type
    name = clean_filename(_words(part, "file_name"))
    return TelegramFile(file_id, kind, name, _integer(part, "file_size"))


def _answered(message: Json, place: int) -> str | None:
    """Return the id of the message that it replies to."""
    number = _integer(_dict(message, "reply_to_message"), "message_id")
    return f"{place}:{number}" if number is not None else None


def _origin_name(origin: Json) -> str:
    user, chat = _dict(origin, "sender_user"), _dict(origin, "chat")
    name = _words(user, "first_name") or _words(origin, "sender_user_name") or _words(chat, "title")
    return name or "someone"


def _raw(sender: Json, chat: Json) -> dict[str, Any]:
    """Return the few facts that are stored: never the update itself, which may hold anything."""
    return {
        "name": " ".join(_words(sender, part) for part in ("first_name", "last_name")).strip(),
        "username": _words(sender, "username"),
        "chat": _words(chat, "type"),
    }


def _words(part: Json, name: str) -> str:
    value = part.get(name)
    return " ".join(text_safe(value).split())[:MAX_NAME] if isinstance(value, str) else ""


def _dict(part: Any, name: str) -> Json:
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, dict) else {}


def _integer(part: Any, name: str) -> int | None:
    value = part.get(name) if isinstance(part, Mapping) else None
    known = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if known else None


def _time(message: Json, name: str) -> datetime:
    seconds = _integer(message, name) or 0
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC)
