"""Egress belongs to the Messenger alone; other butlers get the reading tools of a channel's module."""

from __future__ import annotations

import pytest

from butlers.config.fleet import FleetConfig
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import NotAllowed
from butlers.wire.codec import encode
from support.dovecot import ADDRESS, PASSWORD, mail, running_dovecot
from support.in_process import InProcessButler, MakeButler
from support.tester_folder import ROSTER

EGRESS = {
    "telegram_send_message",
    "telegram_reply_to_message",
    "email_send_message",
    "email_reply_to_thread",
}
READING = {"email_search_inbox", "email_read_message"}
MAILBOX = f"""
address = "{ADDRESS}"
secret = "MAIL"
imap_host = "127.0.0.1"
imap_security = "plain"
imap_port = {{port}}
"""
CHANNELS = f"""
[channels.telegram]

[channels.email.work]
{MAILBOX.format(port=1143)}
smtp_host = "127.0.0.1"
smtp_security = "plain"
"""


def add(made: InProcessButler, text: str) -> None:
    with open(made.directory / "butler.toml", "a") as file:
        file.write(text)


async def names(butler: InProcessButler) -> set[str]:
    async with butler.owner() as owner:
        return {tool["name"] for tool in await owner.list_tools()}


@pytest.mark.scenario("S001-27")
async def test_messenger_is_the_only_owner_of_egress_tools(make_butler: MakeButler) -> None:
    messenger = make_butler("messenger")
    add(messenger, f"{CHANNELS}\n[modules.telegram]\n[modules.email]\n")
    await messenger.start()
    assert await names(messenger) >= EGRESS
    # Present in every fleet, on its port, without schedules, domain skills or anything of its own to do.
    assert "messenger" in FleetConfig().roster
    assert "port = 40104" in (ROSTER / "messenger" / "butler.toml").read_text()
    assert not messenger.config().schedules
    own = [one.resolve() for one in (ROSTER / "messenger").glob("skills/*")]
    assert all(one.is_relative_to(ROSTER / "shared" / "skills") for one in own)
    assert await messenger.count("scheduled_tasks") == 0
    # A butler that registers egress tools loses them, with a warning, and keeps the others.
    tester = make_butler(
        extra="[modules.telegram]\n[modules.email.mailboxes.work]" + MAILBOX.format(port=1143)
    )
    await tester.secret("MAIL", PASSWORD)
    await tester.start()
    offered = await names(tester)
    assert not EGRESS & offered
    assert offered >= READING
    assert set((await tester.status())["stripped_tools"]) >= EGRESS
    # It has notify, whose deliveries reach the Messenger through the Switchboard and no other way.
    async with tester.session() as session:
        assert "notify" in {tool["name"] for tool in await session.list_tools()}
    forged = DeliveryRequest(uuid7(), "tester", Intent.SEND, "console", "console:owner", "hi")
    async with messenger.peer("tester") as peer:
        with pytest.raises(NotAllowed, match="only the Switchboard may call"):
            await peer.call("deliver", {"delivery": encode(forged)})
    async with messenger.peer("switchboard") as peer:
        assert (await peer.call("deliver", {"delivery": encode(forged)}))["status"] == "accepted"


async def test_butler_with_the_email_module_reads_the_mailboxes_it_is_granted(
    make_butler: MakeButler,
) -> None:
    with running_dovecot() as server:
        server.put(mail("the invoice", subject="Invoice"))
        grant = "[modules.email.mailboxes.work]" + MAILBOX.format(port=server.port)
        tester = make_butler(extra=grant)
        await tester.secret("MAIL", PASSWORD)
        await tester.start()
        async with tester.session() as session:
            found = await session.call("email_search_inbox", {"query": "invoice"})
            assert [one["subject"] for one in found["messages"]] == ["Invoice"]
