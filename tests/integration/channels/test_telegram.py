"""The Telegram channel against a Bot API server: sending, its errors, receiving, buttons and progress."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from typing import Any

import httpx
import pytest

from butlers.channels.telegram.sender import TelegramSender
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryAction, DeliveryRequest, Intent
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryRefused,
    DeliveryUncertain,
)
from butlers.wire.codec import encode
from support.bot_api import TOKEN, ApiError, BotApiServer
from support.clocks import SetClock
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

OWNER, STRANGER = 7, 8


def sender(server: BotApiServer, token: str = TOKEN) -> TelegramSender:
    async def secret(name: str) -> str:
        assert name == "TELEGRAM_BOT_TOKEN"
        return token

    return TelegramSender("TELEGRAM_BOT_TOKEN", secret, SetClock(), api_url=server.url)


def delivery(message: str = "Hello.", **changes: Any) -> DeliveryRequest:
    base = DeliveryRequest(uuid7(), "health", Intent.REPLY, "telegram", str(OWNER), message)
    return replace(base, **changes)


# -- sending ------------------------------------------------------------------------------------------


async def test_reply_quotes_its_message_and_returns_the_message_id(bot_api: BotApiServer) -> None:
    bot_api.chat(OWNER)
    receipt = await sender(bot_api).send(delivery("**Hi**", source_event="7:31"))
    (sent,) = bot_api.chats[OWNER].sent
    assert receipt.provider_message_id == f"{OWNER}:{sent['message_id']}"
    assert sent["text"] == "Hi"
    assert sent["entities"] == [{"type": "bold", "offset": 0, "length": 2}]
    assert sent["reply_parameters"] == {"message_id": 31, "allow_sending_without_reply": True}
    assert sent["link_preview_options"] == {"is_disabled": True}


async def test_long_message_is_sent_in_parts_with_the_buttons_at_the_end(
    bot_api: BotApiServer,
) -> None:
    bot_api.chat(OWNER)
    text = " ".join(["word"] * 3000)
    actions = (DeliveryAction("Approve", "/approve 1"), DeliveryAction("Reject", "/reject 1"))
    receipt = await sender(bot_api).send(delivery(text, actions=actions))
    sent = bot_api.chats[OWNER].sent
    assert " ".join(one["text"] for one in sent) == text
    assert [("reply_markup" in one) for one in sent] == [False] * (len(sent) - 1) + [True]
    assert receipt.provider_message_id == f"{OWNER}:{sent[-1]['message_id']}"


async def test_reaction_is_set_on_the_message(bot_api: BotApiServer) -> None:
    chat = bot_api.chat(OWNER)
    react = delivery("", intent=Intent.REACT, emoji="❤️", source_event="7:31")
    receipt = await sender(bot_api).send(react)
    assert chat.reactions == {31: ["❤"]}
    assert receipt.provider_message_id == "7:31:❤"


async def test_emoji_that_bots_may_not_react_with_is_sent_as_text(bot_api: BotApiServer) -> None:
    bot_api.chat(OWNER)
    await sender(bot_api).send(delivery("", intent=Intent.REACT, emoji="🪿", source_event="7:31"))
    assert bot_api.texts(OWNER) == ["🪿"]


async def test_migrated_group_is_followed(bot_api: BotApiServer) -> None:
    bot_api.chat(-5, "group").moved_to = -100_5
    bot_api.chat(-100_5, "supergroup")
    telegram = sender(bot_api)
    receipt = await telegram.send(delivery(target="-5"))
    assert receipt.provider_message_id == "-1005:1"
    await telegram.send(delivery("again", target="-5"))
    assert bot_api.texts(-100_5) == ["Hello.", "again"]
    assert [method for method, _ in bot_api.calls].count("sendMessage") == 3


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ApiError(400, "Bad Request: chat not found"), DeliveryRefused),
        (ApiError(403, "Forbidden: bot was blocked by the user"), DeliveryRefused),
        (ApiError(401, "Unauthorized"), CredentialRefused),
        (ApiError(429, "Too Many Requests: retry after 7", retry_after=7), ChannelBusy),
        (ApiError(500, "Internal Server Error"), DeliveryUncertain),
        (ApiError(502, "Bad Gateway"), DeliveryUncertain),
        ("drop", DeliveryUncertain),
    ],
    ids=str,
)
async def test_each_failure_maps_to_one_error(
    bot_api: BotApiServer, failure: Any, kind: type[ButlersError]
) -> None:
    bot_api.chat(OWNER)
    bot_api.fail["sendMessage"] = deque([failure])
    with pytest.raises(ButlersError) as found:
        await sender(bot_api).send(delivery())
    assert type(found.value) is kind
    assert TOKEN not in str(found.value)
    if isinstance(found.value, ChannelBusy):
        assert found.value.pause_s == 7


async def test_unreachable_server_is_unavailable_and_no_error_names_the_token() -> None:
    server = BotApiServer()
    server.close()
    with pytest.raises(ChannelUnavailable) as found:
        await sender(server).send(delivery())
    assert TOKEN not in repr(found.value)


async def test_failure_after_the_first_part_is_uncertain(bot_api: BotApiServer) -> None:
    bot_api.chat(OWNER)
    calls = 0

    def second_fails(arguments: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ApiError(403, "Forbidden: bot was blocked by the user")
        return {"message_id": calls, "chat": {"id": OWNER}}

    bot_api._do_send_message = second_fails  # type: ignore[method-assign]
    with pytest.raises(DeliveryUncertain, match="1 of 2 parts were sent"):
        await sender(bot_api).send(delivery("x " * 3000))


@pytest.mark.parametrize("text", ["", " \n", "word " * 20_000])
async def test_message_that_telegram_would_refuse_is_not_sent(
    bot_api: BotApiServer, text: str
) -> None:
    bot_api.chat(OWNER)
    with pytest.raises(DeliveryRefused):
        await sender(bot_api).send(delivery(text))
    assert bot_api.texts(OWNER) == []


async def test_target_that_is_no_chat_is_refused(bot_api: BotApiServer) -> None:
    with pytest.raises(DeliveryRefused, match="not a Telegram chat"):
        await sender(bot_api).send(delivery(target="@anna"))


# -- receiving ----------------------------------------------------------------------------------------


def configure(made: InProcessButler, server: BotApiServer, more: str) -> None:
    table = f'[connectors.telegram]\napi_url = "{server.url}"\nowners = [{OWNER}]\npoll_s = 1\n'
    with open(made.directory / "butler.toml", "a") as file:
        file.write(f"\n{table}{more}\n")


async def start(
    make_butler: MakeButler, server: BotApiServer, more: str = "", token: str = TOKEN
) -> InProcessButler:
    made = make_butler("switchboard")
    configure(made, server, more)
    await made.secret("TELEGRAM_BOT_TOKEN", token)
    await made.start()
    return made


async def stored(switchboard: InProcessButler) -> list[dict[str, Any]]:
    return await switchboard.rows(
        "SELECT event_id, sender, text, state, state_reason, endpoint, reply_to, sender_roles,"
        " attachments FROM message_inbox ORDER BY received_at, request_id"
    )


async def until_stored(switchboard: InProcessButler, count: int) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        rows = await stored(switchboard)
        return rows if len(rows) >= count else None

    return await until(f"{count} messages", look)


async def test_messages_of_owner_and_stranger_and_what_is_ignored(
    make_butler: MakeButler, bot_api: BotApiServer
) -> None:
    bot_api.says(OWNER, "weight 80 kg")
    bot_api.push({"channel_post": {"text": "spam"}})
    bot_api.push({"message": {"text": "no chat"}})
    bot_api.says(STRANGER, "hello")
    bot_api.add_file("pic", b"\x89PNG\r\n\x1a\n rest")
    bot_api.says(OWNER, caption="look", photo=[{"file_id": "pic", "file_size": 20}])
    bot_api.says(OWNER, document={"file_id": "gone", "file_name": "a.pdf"})
    bot_api.push({"message": {"text": "no chat, last"}})
    switchboard = await start(make_butler, bot_api)
    rows = await until_stored(switchboard, 4)
    assert [(row["event_id"], row["state"]) for row in rows] == [
        ("7:1", "accepted"),
        ("8:1", "held"),
        ("7:2", "accepted"),
        ("7:3", "accepted"),
    ]
    assert rows[0]["sender_roles"] == ["owner"]
    assert json.loads(rows[2]["attachments"])[0]["media_type"] == "image/png"
    assert "invalid file_id" in rows[3]["text"]

    async def confirmed() -> bool:
        return bot_api.confirmed == 107  # the ignored one at the end, too

    await until("everything to be confirmed", confirmed)


async def test_progress_is_shown_from_seen_to_done_and_not_to_strangers(
    make_butler: MakeButler, bot_api: BotApiServer
) -> None:
    switchboard = await start(make_butler, bot_api)
    number = bot_api.says(OWNER, "hello")
    other = bot_api.says(STRANGER, "hello")
    owner, stranger = bot_api.chat(OWNER), bot_api.chat(STRANGER)
    await until("seen", lambda: number in owner.reactions and owner.typing)
    (row, _) = await until_stored(switchboard, 2)
    assert row["event_id"] == f"{OWNER}:{number}"
    (request,) = await switchboard.rows(
        "SELECT request_id FROM message_inbox WHERE sender = $1", str(OWNER)
    )
    answer = DeliveryRequest(
        uuid7(), "health", Intent.REPLY, "telegram", str(OWNER), "Done.",
        request_id=request["request_id"], source_event=row["event_id"],
    )  # fmt: skip
    async with switchboard.peer("health") as peer:
        await peer.call("deliver", {"delivery": encode(answer)})
        await until("done", lambda: owner.reactions[number][-1] == "👍")
    assert owner.reactions[number] == ["👀", "👍"]
    assert other not in stranger.reactions
    assert stranger.typing == 0


async def test_button_of_the_owner_is_a_command_and_of_another_nothing(
    make_butler: MakeButler, bot_api: BotApiServer
) -> None:
    switchboard = await start(make_butler, bot_api)
    bot_api.chat(OWNER)
    asked = delivery("Send it?", actions=(DeliveryAction("Status", "/status"),))
    await sender(bot_api).send(asked)
    (sent,) = bot_api.chats[OWNER].sent
    refused = bot_api.presses(STRANGER, OWNER, sent["message_id"], "Status")
    pressed = bot_api.presses(OWNER, OWNER, sent["message_id"], "Status")
    first, second = await until_stored(switchboard, 2)
    assert (first["state"], first["state_reason"]) == (
        "skipped",
        "only the owner may press buttons",
    )
    assert (second["state"], second["text"]) == ("accepted", "/status")

    async def carried_out() -> bool:
        return bool(
            await switchboard.rows(
                "SELECT 1 FROM queue_items WHERE queue = 'commands' AND state = 'done'"
            )
        )

    await until("the command to be carried out", carried_out)
    await until("the buttons to be removed", lambda: sent["reply_markup"] == {})
    assert bot_api.answered[pressed] == "Received."
    assert bot_api.answered[refused] == "Only the owner may press this."


async def test_revoked_token_pauses_the_connector_and_tells_the_owner(
    make_butler: MakeButler, bot_api: BotApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.channels.polling.PAUSED_RETRY_S", 0.05)
    switchboard = await start(make_butler, bot_api, token="4242:AAwrong-token-of-the-tests-0000")

    async def told() -> list[dict[str, Any]]:
        return await switchboard.rows(
            "SELECT payload FROM queue_items WHERE payload::text LIKE '%refuses the bot%'"
        )

    rows = await until("the owner to be told", told)
    assert len(rows) == 1
    assert "BotFather" in json.loads(rows[0]["payload"])["message"]
    async with switchboard.owner() as owner:
        (one,) = (await owner.call("connectors_list"))["connectors"]
    assert (one["health"], "refuses the bot's token" in one["why"]) == ("error", True)
    await switchboard.secret("TELEGRAM_BOT_TOKEN", TOKEN)
    bot_api.says(OWNER, "back again")
    assert (await until_stored(switchboard, 1))[0]["text"] == "back again"
    assert len(await told()) == 1


async def test_second_poller_is_named_in_the_health(
    make_butler: MakeButler, bot_api: BotApiServer
) -> None:
    conflict = ApiError(409, "Conflict: terminated by other getUpdates request")
    bot_api.fail["getUpdates"] = deque([conflict])
    switchboard = await start(make_butler, bot_api)
    bot_api.says(OWNER, "after the conflict")
    assert (await until_stored(switchboard, 1))[0]["text"] == "after the conflict"


async def test_webhook_accepts_updates_with_the_secret_only(
    make_butler: MakeButler, bot_api: BotApiServer
) -> None:
    more = 'webhook_url = "https://butlers.example/telegram"\nwebhook_secret = "HOOK"\n'
    made = make_butler("switchboard")
    await made.secret("HOOK", "token-of-the-webhook")
    configure(made, bot_api, more)
    await made.secret("TELEGRAM_BOT_TOKEN", TOKEN)
    await made.start()
    await until("the webhook to be set", lambda: bot_api.webhook.get("url"))
    assert bot_api.webhook["secret_token"] == "token-of-the-webhook"
    url = made.butler.url.replace("/mcp", "/telegram")
    update = {"update_id": 9, "message": {
        "message_id": 4, "date": 1, "from": {"id": OWNER}, "chat": {"id": OWNER}, "text": "hi",
    }}  # fmt: skip
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        headers = {"X-Telegram-Bot-Api-Secret-Token": "token-of-the-webhook"}
        refused = await http.post(url, json=update, headers={})
        first = await http.post(url, json=update, headers=headers)
        again = await http.post(url, json=update, headers=headers)
        ignored = await http.post(url, json={"update_id": 10, "poll": {}}, headers=headers)
    assert [one.status_code for one in (refused, first, again, ignored)] == [401, 202, 202, 202]
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert ignored.json()["status"] == "ignored"
