"""Parsing of Telegram updates: known kinds, ignored kinds, and anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.channels.telegram.parser import IgnoredUpdate, TelegramMessage, parse_update

ANNA = {"id": 7, "is_bot": False, "first_name": "Anna", "last_name": "B."}
PRIVATE = {"id": 7, "type": "private"}


def message(**fields: Any) -> dict[str, Any]:
    base = {"message_id": 3, "date": 1_700_000_000, "from": ANNA, "chat": PRIVATE}
    return {"update_id": 1, "message": {**base, **fields}}


def parsed(update: Any) -> TelegramMessage:
    found = parse_update(update)
    assert isinstance(found, TelegramMessage), found
    found.with_files((), ("(note)",)).check({"telegram"})
    return found


def test_text_message_has_ids_that_a_reply_can_use() -> None:
    found = parsed(message(text="hi", reply_to_message={"message_id": 2})).envelope
    assert found.source.endpoint_identity == "7"
    assert found.sender.identity == "7"
    assert found.event.external_event_id == "7:3"
    assert found.event.external_reply_to == "7:2"
    assert found.event.external_thread_id == "7"
    assert found.payload.raw == {"name": "Anna B.", "username": "", "chat": "private"}


def test_topic_of_a_forum_is_part_of_the_address() -> None:
    group = {"id": -100, "type": "supergroup"}
    found = parsed(message(text="hi", chat=group, message_thread_id=9, is_topic_message=True))
    assert found.envelope.source.endpoint_identity == "-100/9"


def test_edit_is_another_event_in_reply_to_the_first() -> None:
    update = message(text="weight 81 kg", edit_date=1_700_000_009)
    update["edited_message"] = update.pop("message")
    found = parsed(update).envelope
    assert found.event.external_event_id == "7:3:edit:1700000009"
    assert found.event.external_reply_to == "7:3"
    assert found.payload.normalized_text == "(edited) weight 81 kg"


def test_files_and_captions() -> None:
    photo = parsed(
        message(caption="look", photo=[{"file_id": "s"}, {"file_id": "l", "file_size": 9}])
    )
    assert [(file.file_id, file.media_type) for file in photo.files] == [("l", "image/jpeg")]
    assert photo.envelope.payload.normalized_text == "look"
    voice = parsed(message(voice={"file_id": "v", "duration": 4, "mime_type": "audio/ogg"}))
    assert voice.envelope.payload.normalized_text == "(voice message, 4 s)"
    document = parsed(message(document={"file_id": "d", "file_name": "a\u202egpj.exe"}))
    assert document.files[0].filename == "agpj.exe"


def test_forwarded_command_is_quoted() -> None:
    origin = {"type": "user", "sender_user": {"id": 9, "first_name": "Mallory"}}
    found = parsed(message(text="/stop", forward_origin=origin)).envelope.payload
    assert found.normalized_text == "(forwarded from Mallory)\n> /stop"


def test_pressed_button_is_the_command_of_the_person() -> None:
    query = {
        "id": "q1",
        "from": ANNA,
        "data": "/approve 1",
        "message": {"message_id": 5, "chat": PRIVATE},
    }
    found = parsed({"update_id": 2, "callback_query": query})
    assert found.button == "q1"
    assert found.envelope.is_button
    assert found.envelope.payload.normalized_text == "/approve 1"
    assert found.envelope.event.external_reply_to == "7:5"


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (message(text="hi", **{"from": {"id": 1, "is_bot": True}}), "another bot"),
        (message(text="hi", sender_chat={"id": -1}), "name of a channel"),
        ({"update_id": 1, "channel_post": {"text": "hi"}}, "kind channel_post"),
        ({"update_id": 1, "poll": {}}, "kind poll"),
        (message(), "neither text nor a file"),
        (message(text="hi", chat={}), "no sender, chat or message id"),
        ({"update_id": 1, "callback_query": {"id": "q", "from": ANNA, "data": "/x"}}, "no message"),
        ("text", "not an object"),
        (None, "not an object"),
    ],
)
def test_other_updates_are_ignored_with_a_reason(update: Any, reason: str) -> None:
    found = parse_update(update)
    assert isinstance(found, IgnoredUpdate)
    assert reason in found.reason


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_KEYS = st.sampled_from(
    [
        "message", "edited_message", "callback_query", "from", "chat", "id", "message_id", "text",
        "caption", "photo", "voice", "document", "file_id", "mime_type", "date", "edit_date", "data",
        "forward_origin", "sender_user", "reply_to_message", "is_bot", "type", "contact", "location",
        "latitude", "longitude", "sticker", "emoji", "is_topic_message", "message_thread_id",
    ]
)  # fmt: skip
_ANY = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=40,
)


@given(_ANY)
def test_no_update_crashes_the_parser(update: Any) -> None:
    parse_update(update)


@given(st.dictionaries(_KEYS, _ANY, max_size=8))
def test_whatever_is_parsed_can_be_stored(fields: dict[str, Any]) -> None:
    found = parse_update(message(**{"text": "hi", **fields}))
    if isinstance(found, TelegramMessage):
        found.with_files((), ("(note)",)).check({"telegram"})
