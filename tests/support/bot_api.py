"""A Bot API server on loopback with the documented limits and errors of Telegram's, for tests."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from butlers.channels.telegram.sender import REACTIONS

TOKEN = "4242:AAtests-of-the-telegram-channel-0"
BOT = 4242
MAX_UNITS, MAX_CALLBACK_BYTES, MAX_FILE = 4096, 64, 20 * 2**20


def _snake(method: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in method)


class ApiError(Exception):
    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


@dataclass
class Chat:
    """One chat, with the messages that the bot has sent to it."""

    id: int
    kind: str = "private"
    sent: list[dict[str, Any]] = field(default_factory=list)
    reactions: dict[int, list[str | None]] = field(default_factory=dict)  # by message, in order
    typing: int = 0
    blocked: bool = False
    moved_to: int | None = None
    last_number: int = 0

    def number(self) -> int:
        self.last_number += 1
        return self.last_number


class BotApiServer:
    """``fail`` holds errors for the next calls of a method; "drop" closes the connection after the effect."""

    def __init__(self, token: str = TOKEN) -> None:
        self.token = token
        self.chats: dict[int, Chat] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[str, deque[ApiError | str]] = {}
        self.files: dict[str, bytes] = {}
        self.answered: dict[str, str] = {}  # callback queries
        self.webhook: dict[str, Any] = {}
        self.confirmed = 0
        self._updates: list[dict[str, Any]] = []
        self._last_update = 100
        self._changed = threading.Condition()
        self._poller = 0  # the newest poll; an older one is ended with 409
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._closed = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- the people ----------------------------------------------------------------------------------

    def chat(self, chat_id: int, kind: str = "private") -> Chat:
        return self.chats.setdefault(chat_id, Chat(chat_id, kind))

    def says(self, user: int, text: str | None = None, chat: int | None = None, **more: Any) -> int:
        """A person writes. Returns the number of the message."""
        place = self.chat(chat if chat is not None else user, "group" if chat else "private")
        number = more.pop("message_id", None) or place.number()
        message = {
            "message_id": number,
            "date": int(time.time()),
            "from": {"id": user, "is_bot": False, "first_name": f"User {user}"},
            "chat": {"id": place.id, "type": place.kind},
            **({"text": text} if text is not None else {}),
            **more,
        }
        self.push({"message": message})
        return number

    def edits(self, user: int, number: int, text: str) -> None:
        self.push({"edited_message": {
            "message_id": number, "date": int(time.time()) - 5, "edit_date": int(time.time()),
            "from": {"id": user, "is_bot": False}, "chat": {"id": user, "type": "private"},
            "text": text,
        }})  # fmt: skip

    def presses(self, user: int, chat: int, number: int, label: str) -> str:
        """A person presses a button of a message of the bot. Returns the id of the query."""
        (message,) = [one for one in self.chats[chat].sent if one["message_id"] == number]
        rows = message["reply_markup"]["inline_keyboard"]
        (data,) = [
            button["callback_data"] for row in rows for button in row if button["text"] == label
        ]
        query = f"q{len(self.answered) + self._last_update}"
        self.push({"callback_query": {
            "id": query, "from": {"id": user, "is_bot": False}, "data": data,
            "message": {"message_id": number, "chat": {"id": chat, "type": "private"}, "date": 1},
        }})  # fmt: skip
        return query

    def push(self, update: dict[str, Any]) -> None:
        with self._changed:
            self._last_update += 1
            self._updates.append({"update_id": self._last_update, **update})
            self._changed.notify_all()

    def add_file(self, file_id: str, content: bytes) -> None:
        self.files[file_id] = content

    def texts(self, chat: int) -> list[str]:
        return [message["text"] for message in self.chats[chat].sent] if chat in self.chats else []

    # -- the methods ---------------------------------------------------------------------------------

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        with self._changed:
            self.calls.append((method, arguments))
            failures = self.fail.get(method)
            failure = failures.popleft() if failures else None
        if isinstance(failure, ApiError):
            raise failure
        handler: Callable[[dict[str, Any]], Any] | None = getattr(
            self, f"_do_{_snake(method)}", None
        )
        if handler is None:
            raise ApiError(404, "Not Found: method not found")
        result = handler(arguments)
        if failure == "drop":
            raise ConnectionAbortedError
        return result

    def _do_get_me(self, _: dict[str, Any]) -> Any:
        return {"id": BOT, "is_bot": True, "first_name": "Butlers", "username": "butlers_test_bot"}

    def _do_get_updates(self, arguments: dict[str, Any]) -> Any:
        if self.webhook.get("url"):
            raise ApiError(409, "Conflict: can't use getUpdates method while webhook is active")
        limit = arguments.get("limit", 100)
        if not 1 <= limit <= 100:
            raise ApiError(400, "Bad Request: limit must be between 1 and 100")
        deadline = time.monotonic() + min(arguments.get("timeout", 0), 50)
        offset, allowed = arguments.get("offset", 0), arguments.get("allowed_updates") or []
        with self._changed:
            self._poller += 1
            mine = self._poller
            self._changed.notify_all()
            self.confirmed = max(self.confirmed, offset - 1)
            self._updates = [one for one in self._updates if one["update_id"] >= offset]
            while True:
                if self._poller != mine:
                    raise ApiError(409, "Conflict: terminated by other getUpdates request")
                found = [one for one in self._updates if not allowed or {*one} & {*allowed}]
                left = deadline - time.monotonic()
                if found or left <= 0 or self._closed:
                    return found[:limit]
                self._changed.wait(left)

    def _do_send_message(self, arguments: dict[str, Any]) -> Any:
        chat = self._reachable(arguments)
        text = arguments.get("text", "")
        length = len(text.encode("utf-16-le")) // 2
        if not text.strip():
            raise ApiError(400, "Bad Request: message text is empty")
        if length > MAX_UNITS:
            raise ApiError(400, "Bad Request: message is too long")
        for entity in arguments.get("entities", ()):
            if entity["offset"] < 0 or entity["offset"] + entity["length"] > length:
                raise ApiError(400, "Bad Request: can't parse entities")
        for row in arguments.get("reply_markup", {}).get("inline_keyboard", ()):
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= MAX_CALLBACK_BYTES:
                    raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")
        with self._changed:
            message = {**arguments, "message_id": chat.number(), "at": time.monotonic()}
            chat.sent.append(message)
            self._changed.notify_all()
        return {"message_id": message["message_id"], "chat": {"id": chat.id}, "date": 1}

    def _do_set_message_reaction(self, arguments: dict[str, Any]) -> Any:
        chat = self._reachable(arguments)
        emoji = [one["emoji"] for one in arguments.get("reaction", ())]
        if any(one not in REACTIONS for one in emoji) or len(emoji) > 1:
            raise ApiError(400, "Bad Request: REACTION_INVALID")
        with self._changed:
            chat.reactions.setdefault(arguments["message_id"], []).append(
                emoji[0] if emoji else None
            )
        return True

    def _do_send_chat_action(self, arguments: dict[str, Any]) -> Any:
        self._reachable(arguments).typing += 1
        return True

    def _do_answer_callback_query(self, arguments: dict[str, Any]) -> Any:
        self.answered[arguments["callback_query_id"]] = arguments.get("text", "")
        return True

    def _do_edit_message_reply_markup(self, arguments: dict[str, Any]) -> Any:
        chat = self._reachable(arguments)
        for message in chat.sent:
            if message["message_id"] == arguments["message_id"]:
                message["reply_markup"] = arguments.get("reply_markup", {})
        return True

    def _do_get_file(self, arguments: dict[str, Any]) -> Any:
        content = self.files.get(arguments["file_id"])
        if content is None:
            raise ApiError(400, "Bad Request: invalid file_id")
        if len(content) > MAX_FILE:
            raise ApiError(400, "Bad Request: file is too big")
        return {"file_id": arguments["file_id"], "file_path": f"files/{arguments['file_id']}"}

    def _do_get_webhook_info(self, _: dict[str, Any]) -> Any:
        return {"url": self.webhook.get("url", ""), "pending_update_count": len(self._updates)}

    def _do_set_webhook(self, arguments: dict[str, Any]) -> Any:
        if not arguments["url"].startswith("https://"):
            raise ApiError(
                400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
            )
        self.webhook = arguments
        return True

    def _do_delete_webhook(self, _: dict[str, Any]) -> Any:
        self.webhook = {}
        return True

    def _reachable(self, arguments: dict[str, Any]) -> Chat:
        chat = self.chats.get(arguments["chat_id"])
        if chat is None:
            raise ApiError(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.moved_to,
            )
        if chat.blocked:
            raise ApiError(403, "Forbidden: bot was blocked by the user")
        return chat

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                prefix = f"/file/bot{server.token}/files/"
                content = server.files.get(self.path.removeprefix(prefix))
                known = self.path.startswith(prefix) and content is not None
                self._send(200 if known else 404, content or b"" if known else b"")

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                try:
                    token, method = self.path.removeprefix("/bot").split("/", 1)
                    if token != server.token:
                        raise ApiError(401, "Unauthorized")
                    result = server.call(method, json.loads(raw or b"{}"))
                except ApiError as error:
                    answer = {
                        "ok": False, "error_code": error.code, "description": error.description,
                        **({"parameters": error.parameters} if error.parameters else {}),
                    }  # fmt: skip
                    self._send(error.code, json.dumps(answer).encode())
                except ConnectionAbortedError:
                    self.connection.close()
                else:
                    self._send(200, json.dumps({"ok": True, "result": result}).encode())

            def _send(self, status: int, body: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # the client has gone

            def log_message(self, *_: Any) -> None:
                return None

        return Handler
