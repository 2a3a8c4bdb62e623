"""Tools of the Telegram channel on the Messenger. Each call becomes a delivery."""

from __future__ import annotations

from typing import Any

from butlers.channels.outgoing import send_and_wait
from butlers.channels.telegram.parser import TELEGRAM
from butlers.domain.caller import CallerKind
from butlers.domain.delivery import Intent
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

CALLERS = frozenset({CallerKind.SESSION, CallerKind.OWNER})


@tool(callers=CALLERS, effect=Effect.LONG)
async def telegram_send_message(ctx: CallContext, chat_id: str, text: str) -> dict[str, Any]:
    """Send a message to a Telegram chat. message_id is the receipt; a new chat waits for approval."""
    return await send_and_wait(ctx, TELEGRAM, chat_id, text)


@tool(callers=CALLERS, effect=Effect.LONG)
async def telegram_reply_to_message(
    ctx: CallContext, chat_id: str, message_id: str, text: str
) -> dict[str, Any]:
    """Reply to one message of a Telegram chat, as CHAT:MESSAGE or by its number."""
    return await send_and_wait(ctx, TELEGRAM, chat_id, text, answers=_event(chat_id, message_id))


@tool(callers=CALLERS, effect=Effect.LONG)
async def telegram_react(
    ctx: CallContext, chat_id: str, message_id: str, emoji: str
) -> dict[str, Any]:
    """React to one message of a Telegram chat with an emoji."""
    return await send_and_wait(
        ctx,
        TELEGRAM,
        chat_id,
        "",
        intent=Intent.REACT,
        emoji=emoji,
        answers=_event(chat_id, message_id),
    )


def _event(chat_id: str, message_id: str) -> str:
    return message_id if ":" in message_id else f"{chat_id.partition('/')[0]}:{message_id}"


TOOLS = (telegram_send_message, telegram_reply_to_message, telegram_react)
