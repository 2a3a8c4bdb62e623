"""One suite for every channel: receive, thread, reply, receipt, duplicates, crashes, limits, order.

Each channel brings a ``Rig``: the real parser or connector against a real Switchboard on one side, the real
sender under the real delivery queue on the other, and a server of the outside world in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from butlers.channels.base import ChannelSender, InboundContext
from butlers.channels.console.connector import parse as parse_console
from butlers.channels.console.mailbox import ConsoleSender
from butlers.channels.email.config import EmailInbound, EmailOutbound
from butlers.channels.email.connector import EmailSource
from butlers.channels.email.parser import FetchedMail, parse_mail
from butlers.channels.email.sender import EmailSender
from butlers.channels.polling import PolledMessage, PollingConnector, PollingSource
from butlers.channels.registry import load_channels
from butlers.channels.telegram.config import TelegramInbound
from butlers.channels.telegram.connector import TelegramSource
from butlers.channels.telegram.sender import TelegramSender
from butlers.channels.webhook.parser import parse as parse_webhook
from butlers.channels.webhook.sender import OutboundWebhook, WebhookSender
from butlers.db.database import Database
from butlers.domain.clock import SystemClock, uuid7
from butlers.domain.delivery import DeliveryRequest, DeliveryState, Intent
from butlers.domain.message import InboundEnvelope
from butlers.messenger.limits import DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.messenger.sender import DeliverySender
from support.bot_api import TOKEN, ApiError, BotApiServer
from support.deliveries import DeliveryHarness
from support.dovecot import ADDRESS, PASSWORD, SERVER, Dovecot, mail
from support.in_process import InProcessButler
from support.smtp_server import SmtpServer
from support.waiting import until
from support.webhook_server import CLOSE, WebhookServer, status

CHANNELS = ("console", "webhook", "telegram", "email")
OUTSIDE = ("webhook", "telegram", "email")  # channels that leave the machine


@dataclass
class Rig:
    """A channel with its outside world."""

    name: str
    target: str
    envelopes: Callable[[Sequence[str]], list[InboundEnvelope]]  # of texts of one person
    sender: Callable[[], ChannelSender]
    arrived: Callable[[], list[str]] = list  # texts that reached the person
    lose_answer: Callable[[], None] = lambda: None  # the next send arrives, its answer does not
    make_busy: Callable[[], None] = lambda: None  # the next send is refused for now
    revoke: Callable[[], None] = lambda: None  # the credential is refused from now on
    say: Callable[[str], None] | None = None  # in the outside world, for sources that are polled
    source: Callable[[InboundContext], PollingSource] | None = None


async def _secret(_name: str) -> str:
    return PASSWORD


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Rig:
    build = {"console": _console, "webhook": _webhook, "telegram": _telegram, "email": _email}
    return build[request.param](request)


def _console(request: pytest.FixtureRequest) -> Rig:
    clock = SystemClock()
    return Rig(
        "console",
        "console:owner",
        lambda texts: [
            parse_console(text, clock, event_id=f"e{n}") for n, text in enumerate(texts)
        ],
        lambda: ConsoleSender(request.getfixturevalue("messenger_database"), clock),
    )


def _webhook(request: pytest.FixtureRequest) -> Rig:
    server: WebhookServer = request.getfixturevalue("server")
    clock = SystemClock()

    def envelopes(texts: Sequence[str]) -> list[InboundEnvelope]:
        bodies = [
            f'{{"text": "{text}", "id": "e{n}", "thread": "t"}}' for n, text in enumerate(texts)
        ]
        return [parse_webhook("phone", body.encode(), clock, owners=True) for body in bodies]

    hook = OutboundWebhook(url=server.url, secret_name="HOOK", idempotent=False)
    return Rig(
        "webhook",
        "phone:owner",
        envelopes,
        lambda: WebhookSender({"phone": hook}, _secret, clock),
        lambda: _taken(server),
        lambda: server.script(replace(CLOSE, takes=True)),
        lambda: server.script(status(429, Retry_After="1")),
        lambda: setattr(server, "usual", status(401)),
    )


def _taken(server: WebhookServer) -> list[str]:
    """Return the texts that the server took, each as often as it did."""
    texts = {one.key: one.body["message"] for one in server.requests}
    return [texts[key] for key, times in server.times.items() for _ in range(times)]


def _telegram(request: pytest.FixtureRequest) -> Rig:
    server: BotApiServer = request.getfixturevalue("bot_api")
    server.chat(7)
    config = TelegramInbound(api_url=server.url, poll_s=0)

    async def secret(_name: str) -> str:
        return TOKEN

    return Rig(
        "telegram",
        "7",
        lambda texts: [],
        lambda: TelegramSender("T", secret, SystemClock(), api_url=server.url),
        lambda: server.texts(7),
        lambda: server.fail.update(sendMessage=deque(["drop"])),
        lambda: server.fail.update(sendMessage=deque([ApiError(429, "slow", retry_after=1)])),
        lambda: setattr(server, "token", "another"),
        say=lambda text: server.says(7, text) and None,
        source=lambda context: TelegramSource(config, replace(context, secret=secret)),
    )


def _email(request: pytest.FixtureRequest) -> Rig:
    dovecot: Dovecot = request.getfixturevalue("dovecot")
    smtp: SmtpServer = request.getfixturevalue("smtp")
    servers = {
        "address": ADDRESS, "secret": "M", "imap_host": "127.0.0.1", "imap_port": dovecot.port,
        "imap_security": "plain",
    }  # fmt: skip
    inbound = EmailInbound(**servers, auth_servers=(SERVER,), answers=True)
    outbound = EmailOutbound(
        **servers, smtp_host="127.0.0.1", smtp_port=smtp.port, smtp_security="plain"
    )
    return Rig(
        "email",
        "work:anna@example.com",
        lambda texts: [],
        lambda: EmailSender({"work": outbound}, _secret, SystemClock()),
        lambda: [one.get_payload(decode=True).decode().strip() for one in smtp.mails],  # type: ignore[union-attr]
        lambda: smtp.data.append("drop"),
        lambda: smtp.rcpt.append("451 4.7.1 later"),
        lambda: setattr(smtp, "password", "another"),
        say=lambda text: dovecot.put(mail(text, subject="", References="<root@x>")),
        source=lambda context: EmailSource("work", inbound, replace(context, secret=_secret)),
    )


every = pytest.mark.parametrize("rig", CHANNELS, indirect=True)
outside = pytest.mark.parametrize("rig", OUTSIDE, indirect=True)
polled = pytest.mark.parametrize("rig", ["telegram", "email"], indirect=True)


# -- inbound ------------------------------------------------------------------------------------------


def context_of(switchboard: InProcessButler) -> InboundContext:
    (role,) = [one for one in switchboard.butler.roles if hasattr(one, "_inbox")]
    found: InboundContext = role._inbox.context()
    return found


async def fetch(
    rig: Rig, switchboard: InProcessButler, texts: Sequence[str]
) -> list[InboundEnvelope]:
    """Return the envelopes of messages that a person wrote, as the channel makes them."""
    if rig.source is None or rig.say is None:
        return rig.envelopes(texts)
    source = rig.source(context_of(switchboard))
    cursor = await _begin(source)
    for text in texts:
        rig.say(text)
    found = [one for one in await source.poll(cursor) if isinstance(one, PolledMessage)]
    return [one.envelope for one in found]


async def _begin(source: PollingSource) -> Any:
    """Return the position after everything that is there before the test."""
    if source.kind == "telegram":
        return None
    (start,) = await source.poll(None)
    return start.cursor


async def stored(switchboard: InProcessButler) -> list[dict[str, Any]]:
    return await switchboard.rows(
        "SELECT event_id, text, thread, sender FROM message_inbox ORDER BY received_at, request_id"
    )


@every
async def test_messages_are_received_in_order_with_thread_and_once(
    rig: Rig, switchboard: InProcessButler
) -> None:
    envelopes = await fetch(rig, switchboard, ["one", "two", "three"])
    inbox = context_of(switchboard).inbox
    first = [await inbox.accept(envelope) for envelope in envelopes]
    again = [await inbox.accept(envelope) for envelope in envelopes]
    assert [one["duplicate"] for one in first] == [False] * 3
    assert [(one["duplicate"], one["request_id"]) for one in again] == [
        (True, one["request_id"]) for one in first
    ]
    rows = await stored(switchboard)
    assert [row["text"] for row in rows] == ["one", "two", "three"]
    assert len({row["thread"] for row in rows}) == 1
    assert len({row["event_id"] for row in rows}) == 3


@every
async def test_answer_goes_back_to_the_address_it_came_from(
    rig: Rig, switchboard: InProcessButler
) -> None:
    (envelope,) = await fetch(rig, switchboard, ["hello"])
    assert envelope.source.endpoint_identity == rig.target
    names = load_channels(switchboard.home).names
    envelope.check(names)
    assert envelope.source.channel == rig.name


@polled
async def test_crash_between_fetch_and_acceptance_loses_nothing(
    rig: Rig, switchboard: InProcessButler
) -> None:
    assert rig.source is not None
    assert rig.say is not None
    context = context_of(switchboard)
    connector = PollingConnector(rig.source(context), context.inbox, context.clock)
    await connector.beat()
    cursor = await connector.step(None) if rig.name == "email" else None
    rig.say("one")
    rig.say("two")
    crashed = rig.source(context)
    await crashed.poll(cursor)  # fetched, and then the process is gone
    after = PollingConnector(rig.source(context), context.inbox, context.clock)
    await after.beat()
    await after.step(await after.checkpoint())
    assert [row["text"] for row in await stored(switchboard)] == ["one", "two"]


async def _storm(rig: Rig, switchboard: InProcessButler, messages: int, kills: int) -> None:
    """Kill the connector again and again while messages come in; each is stored once, in order."""
    assert rig.source is not None
    assert rig.say is not None
    context = context_of(switchboard)
    first = PollingConnector(rig.source(context), context.inbox, context.clock)
    await first.beat()
    if rig.name == "email":
        await first.step(None)
    said = [f"message {number}" for number in range(messages)]

    async def connect() -> None:
        connector = PollingConnector(rig.source(context), context.inbox, context.clock)  # type: ignore[misc]
        await connector.run()

    running = asyncio.create_task(connect())
    step = max(1, messages // (kills + 1))
    for number, text in enumerate(said):
        await asyncio.to_thread(rig.say, text)
        if number % step == step - 1:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            running = asyncio.create_task(connect())

    async def all_stored() -> bool:
        return len(await stored(switchboard)) >= messages

    await until("the storm to be over", all_stored)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [row["text"] for row in await stored(switchboard)] == said


@polled
async def test_storm_with_kills_stores_each_message_once_and_in_order(
    rig: Rig, switchboard: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.channels.email.connector.IDLE_S", 0.5)
    await _storm(rig, switchboard, 30, 3)


@pytest.mark.soak
@polled
async def test_storm_of_a_thousand_messages_with_kills(
    rig: Rig, switchboard: InProcessButler
) -> None:
    await _storm(rig, switchboard, 1000, 20)


# -- outbound -----------------------------------------------------------------------------------------


class Deliveries(DeliveryHarness):
    """The delivery queue with one channel and the console."""

    def use(self, rig: Rig) -> None:
        self.rig = rig
        self.policy = DeliveryPolicy(channels=frozenset({"console", rig.name}))

    async def make_sender(self) -> DeliverySender:
        channels = {
            "console": ConsoleSender(self.database, self.clock),
            self.rig.name: self.rig.sender(),
        }
        limits = DeliveryLimits(self.clock, **self.limits)
        made = DeliverySender(self.database, channels, self.policy, limits, self.clock)
        await made.open()
        return made

    async def send(self, message: str) -> Any:
        one = DeliveryRequest(
            uuid7(), "health", Intent.REPLY, self.rig.name, self.rig.target, message
        )
        return await self.accept(one)


@pytest.fixture
async def deliveries(
    rig: Rig, messenger_database: Database, server: WebhookServer
) -> AsyncIterator[Deliveries]:
    made = Deliveries(messenger_database, server)
    made.use(rig)
    await made.open()
    yield made
    await made.close()


@every
async def test_reply_is_delivered_with_a_receipt_and_in_order(
    rig: Rig, deliveries: Deliveries
) -> None:
    texts = [f"answer {number}" for number in range(3)]
    ids = [await deliveries.send(text) for text in texts]
    rows = [await deliveries.until_state(one, DeliveryState.DELIVERED) for one in ids]
    assert len({row["provider_message_id"] for row in rows}) == 3
    found = await deliveries.mail() if rig.name == "console" else rig.arrived()
    assert found == texts


@outside
async def test_lost_answer_is_uncertain_not_repeated_and_told_once(
    rig: Rig, deliveries: Deliveries
) -> None:
    rig.lose_answer()
    one = await deliveries.send("only once")
    await deliveries.until_state(one, DeliveryState.UNKNOWN)
    notices = deliveries.notices()
    await notices.send_notices()
    await notices.send_notices()
    (told,) = await deliveries.until_mail()
    assert "I do not know whether a message arrived" in told
    assert rig.arrived() == ["only once"]


@outside
async def test_rate_limit_delays_the_delivery(rig: Rig, deliveries: Deliveries) -> None:
    rig.make_busy()
    one = await deliveries.send("after the pause")
    row = await deliveries.until_state(one, DeliveryState.DEFERRED)
    assert row["not_before"] is not None
    assert rig.arrived() == []
    deliveries.clock.leap(seconds=300)
    await deliveries.hurry()
    await deliveries.until_state(one, DeliveryState.DELIVERED)
    assert rig.arrived() == ["after the pause"]


@outside
async def test_revoked_credential_fails_at_once_and_the_owner_is_told_elsewhere(
    rig: Rig, deliveries: Deliveries
) -> None:
    rig.revoke()
    deliveries.policy = replace(deliveries.policy, owner=(rig.name, rig.target))
    one = await deliveries.send("nobody gets this")
    await deliveries.until_state(one, DeliveryState.FAILED)
    await deliveries.notices().send_notices()
    (told,) = await deliveries.until_mail()  # on the console, because the channel fails
    assert "could not be delivered" in told
    assert rig.arrived() == []


@outside
async def test_crash_between_send_and_receipt_is_told_and_not_repeated(
    rig: Rig, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(deliveries.sender, "_store_receipt", die)
    one = await deliveries.send("sent before the crash")
    await until("it to be sent", lambda: rig.arrived())
    await deliveries.close()
    await deliveries.execute("UPDATE queue_items SET lease_until = now() WHERE state = 'leased'")
    await deliveries.open()
    await deliveries.hurry()
    await deliveries.until_state(one, DeliveryState.UNKNOWN)
    assert rig.arrived() == ["sent before the crash"]


def test_mail_of_two_accounts_is_two_messages() -> None:
    account = EmailInbound(address=ADDRESS, secret="M", imap_host="x")
    source = mail("hello")
    fetched = FetchedMail(source, len(source), "<1@x>", SystemClock().now())
    keys = {parse_mail(name, account, fetched).dedupe_key for name in ("work", "home")}
    assert len(keys) == 2
