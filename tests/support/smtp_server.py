"""An SMTP server on loopback that keeps what it accepts and fails as it is told."""

from __future__ import annotations

import asyncio
import email
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from support.dovecot import free_port


@dataclass
class SmtpServer:
    """``rcpt``, ``data``: answers of the next commands instead of 250; "drop" closes the connection."""

    password: str = "the password of the tests"
    mails: list[Message] = field(default_factory=list)
    rcpt: deque[str] = field(default_factory=deque)
    data: deque[str] = field(default_factory=deque)
    logins: int = 0
    on_mail: Callable[[bytes], None] | None = None  # gets the source of each accepted mail

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a password without TLS is right on loopback
            self._controller = Controller(
                self,
                hostname="127.0.0.1",
                port=free_port(),
                authenticator=self._authenticate,
                auth_required=True,
                auth_require_tls=False,
            )
            self._controller.start()
        self.port = self._controller.port

    def close(self) -> None:
        if self._controller.server is not None:
            self._controller.stop(no_assert=True)

    def _authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        self.logins += 1
        good = isinstance(data, LoginPassword) and data.password == self.password.encode()
        return AuthResult(success=good, handled=False)

    async def handle_RCPT(  # noqa: N802  (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.rcpt:
            return self.rcpt.popleft()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        answer = self.data.popleft() if self.data else "250 OK"
        if answer == "drop" or answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.mails.append(email.message_from_bytes(envelope.content))
            if self.on_mail is not None:
                await asyncio.to_thread(self.on_mail, envelope.content)
        if answer == "drop":
            assert server.transport is not None
            server.transport.abort()
        return answer
