"""The email channel against dovecot and an SMTP server: receiving, sending, threads, drafts and tools."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from email.header import decode_header, make_header
from typing import Any

import pytest

from butlers.channels.email.config import EmailOutbound
from butlers.channels.email.sender import EmailSender
from butlers.domain.clock import SystemClock, uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import (
    ButlersError,
    ChannelBusy,
    ChannelUnavailable,
    CredentialRefused,
    DeliveryRefused,
    DeliveryUncertain,
)
from support.dovecot import ADDRESS, PASSWORD, SERVER, Dovecot, mail
from support.in_process import InProcessButler, MakeButler
from support.smtp_server import SmtpServer
from support.waiting import until

OWNER = "owner@example.net"

# -- receiving ----------------------------------------------------------------------------------------


def configure(made: InProcessButler, dovecot: Dovecot, more: str = "") -> None:
    table = f"""
[connectors.email.work]
address = "{ADDRESS}"
secret = "MAIL_PASSWORD"
imap_host = "127.0.0.1"
imap_port = {dovecot.port}
imap_security = "plain"
auth_servers = ["{SERVER}"]
owner_addresses = ["{OWNER}"]
{more}
"""
    with open(made.directory / "butler.toml", "a") as file:
        file.write(table)


async def start(make_butler: MakeButler, dovecot: Dovecot, more: str = "") -> InProcessButler:
    made = make_butler("switchboard")
    configure(made, dovecot, more)
    await made.secret("MAIL_PASSWORD", PASSWORD)
    await made.start()
    return made


async def until_stored(switchboard: InProcessButler, count: int) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        rows = await switchboard.rows(
            "SELECT event_id, sender, text, state, state_reason, thread, reply_to, policy_tier, raw,"
            " sender_roles, attachments FROM message_inbox ORDER BY received_at, request_id"
        )
        return rows if len(rows) >= count else None

    return await until(f"{count} mails", look)


async def until_started(switchboard: InProcessButler, *folders: str) -> None:
    async def look() -> bool:
        rows = await switchboard.rows("SELECT cursor FROM connectors WHERE cursor IS NOT NULL")
        return any(all(folder in str(row["cursor"]) for folder in folders) for row in rows)

    await until("the mailbox to be read", look)


async def test_new_mail_is_seen_by_idle_and_older_mail_is_not_touched(
    make_butler: MakeButler, dovecot: Dovecot
) -> None:
    dovecot.put(mail("old"))
    switchboard = await start(make_butler, dovecot)
    await until_started(switchboard)
    dovecot.put(mail("weight 80 kg", sender=OWNER, subject=""))
    (first,) = await until_stored(switchboard, 1)
    assert (first["state"], first["text"], first["sender_roles"]) == (
        "accepted",
        "weight 80 kg",
        ["owner"],
    )
    dovecot.put(mail("hello", subject="Dinner"))
    dovecot.put(mail("I am the owner", sender=OWNER, genuine=None))
    dovecot.put(mail("buy", sender="shop@example.org", List_Id="<a.example>"))
    rows = await until_stored(switchboard, 4)
    assert [(row["sender"], row["state"]) for row in rows[1:]] == [
        ("anna@example.com", "held"),
        (f"{OWNER} (unverified)", "held"),
        ("shop@example.org", "skipped"),
    ]
    assert rows[1]["text"] == "Dinner\n\nhello"
    with dovecot.mailbox() as box:
        assert not any(
            "\\Seen" in one.flags for one in box.fetch(mark_seen=False, headers_only=True)
        )


async def test_history_is_stored_for_search_and_nobody_is_asked(
    make_butler: MakeButler, dovecot: Dovecot
) -> None:
    dovecot.put_many([mail(f"old {number}", sender=f"p{number}@x.org") for number in range(5)])
    dovecot.put(mail("from me", sender=OWNER))
    switchboard = await start(make_butler, dovecot, "history_days = 30")
    rows = await until_stored(switchboard, 6)
    assert {(row["state"], row["state_reason"]) for row in rows} == {
        ("skipped", "from before the channel was connected")
    }
    dovecot.put(mail("new", sender=OWNER, subject=""))
    *_, last = await until_stored(switchboard, 7)
    assert (last["text"], last["state"]) == ("new", "accepted")
    assert not await switchboard.rows("SELECT 1 FROM queue_items WHERE queue = 'notify'")


async def test_renumbered_folder_loses_and_repeats_nothing(
    make_butler: MakeButler, dovecot: Dovecot
) -> None:
    switchboard = await start(make_butler, dovecot)
    await until_started(switchboard)
    dovecot.put(mail("one"))
    await until_stored(switchboard, 1)
    await switchboard.close()
    dovecot.put(mail("two"))
    dovecot.renumber()
    await switchboard.start()
    await until_stored(switchboard, 2)
    dovecot.put(mail("three"))
    rows = await until_stored(switchboard, 3)
    assert [row["text"].split()[-1] for row in rows] == ["one", "two", "three"]


async def test_moved_mail_and_several_folders(make_butler: MakeButler, dovecot: Dovecot) -> None:
    with dovecot.mailbox() as box:
        box.folder.create("Bills")
    switchboard = await start(make_butler, dovecot, 'folders = ["INBOX", "Bills"]\npoll_s = 1')
    await until_started(switchboard, "INBOX", "Bills")
    dovecot.put(mail("one", message_id="<one@x>"))
    await until_stored(switchboard, 1)
    with dovecot.mailbox() as box:
        box.move(box.uids(), "Bills")
    dovecot.put(mail("two", message_id="<two@x>"), "Bills")
    rows = await until_stored(switchboard, 2)
    assert [row["event_id"] for row in rows] == ["<one@x>", "<two@x>"]


async def test_mail_over_the_limit_is_stored_without_its_content(
    make_butler: MakeButler, dovecot: Dovecot
) -> None:
    switchboard = await start(make_butler, dovecot, "max_mb = 1")
    await until_started(switchboard)
    dovecot.put(mail("x" * 70 + "\n" + ("y" * 70 + "\n") * 30_000, subject="Large"))
    (row,) = await until_stored(switchboard, 1)
    assert row["text"].startswith("Large\n\n(The mail has 2,")
    assert "yyy" not in row["text"]


async def test_malformed_mail_does_not_stop_the_mailbox(
    make_butler: MakeButler, dovecot: Dovecot
) -> None:
    switchboard = await start(make_butler, dovecot)
    await until_started(switchboard)
    dovecot.put(b"From\xff: \x80\r\nContent-Type: multipart/mixed; boundary=\r\n\r\n\xff\xfe")
    dovecot.put(mail("after", subject=""))
    rows = await until_stored(switchboard, 2)
    assert rows[1]["text"] == "after"


async def test_wrong_password_pauses_the_mailbox_and_tells_the_owner(
    make_butler: MakeButler, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.channels.polling.PAUSED_RETRY_S", 0.1)
    dovecot.set_password("changed")
    switchboard = await start(make_butler, dovecot)

    async def told() -> list[dict[str, Any]]:
        return await switchboard.rows(
            "SELECT payload FROM queue_items WHERE payload::text LIKE '%refuses the login%'"
        )

    (row,) = await until("the owner to be told", told)
    assert "app password" in json.loads(row["payload"])["message"]
    dovecot.set_password(PASSWORD)
    await until_started(switchboard)


# -- sending ------------------------------------------------------------------------------------------


def accounts(dovecot: Dovecot, smtp: SmtpServer, **changes: Any) -> dict[str, EmailOutbound]:
    fields: dict[str, Any] = {
        "address": ADDRESS,
        "name": "Butlers of Ö.",
        "secret": "MAIL_PASSWORD",
        "imap_host": "127.0.0.1",
        "imap_port": dovecot.port,
        "imap_security": "plain",
        "smtp_host": "127.0.0.1",
        "smtp_port": smtp.port,
        "smtp_security": "plain",
        "sent_folder": "Sent",
    }
    return {"work": EmailOutbound(**{**fields, **changes})}


def sender(dovecot: Dovecot, smtp: SmtpServer, **changes: Any) -> EmailSender:
    async def secret(name: str) -> str:
        assert name == "MAIL_PASSWORD"
        return PASSWORD

    return EmailSender(accounts(dovecot, smtp, **changes), secret, SystemClock())


def delivery(message: str = "Grüße.", **changes: Any) -> DeliveryRequest:
    target = "work:anna@example.com"
    base = DeliveryRequest(uuid7(), "health", Intent.REPLY, "email", target, message)
    return replace(base, **changes)


async def test_reply_is_threaded_marked_as_automatic_and_kept_in_sent(
    dovecot: Dovecot, smtp: SmtpServer
) -> None:
    one = delivery(subject="Re: Dinner", references=("<a@x>", "<b@x>"), source_event="<b@x>")
    receipt = await sender(dovecot, smtp).send(one)
    (sent,) = smtp.mails
    assert receipt.provider_message_id == f"<butlers.{one.delivery_id.hex}@example.org>"
    assert sent["Message-ID"] == receipt.provider_message_id
    assert (sent["Subject"], sent["To"]) == ("Re: Dinner", "anna@example.com")
    assert sent["In-Reply-To"] == "<b@x>"
    assert sent["References"] == "<a@x> <b@x>"
    assert sent["Auto-Submitted"] == "auto-replied"
    payload = sent.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert payload.decode().strip() == "Grüße."
    (copy,) = dovecot.sources("Sent")
    assert receipt.provider_message_id.encode() in copy


async def test_mail_without_a_subject_gets_its_first_words(
    dovecot: Dovecot, smtp: SmtpServer
) -> None:
    await sender(dovecot, smtp).send(delivery("word " * 50, intent=Intent.SEND))
    assert len(str(make_header(decode_header(smtp.mails[0]["Subject"])))) <= 60
    assert smtp.mails[0]["Auto-Submitted"] == "auto-generated"


@pytest.mark.parametrize(
    ("step", "answer", "kind"),
    [
        ("rcpt", "550 5.1.1 no such user", DeliveryRefused),
        ("rcpt", "451 4.7.1 greylisted", ChannelBusy),
        ("data", "554 5.6.0 spam", DeliveryRefused),
        ("data", "452 4.3.1 full", ChannelBusy),
        ("data", "drop", DeliveryUncertain),
    ],
)
async def test_each_answer_maps_to_one_error(
    dovecot: Dovecot, smtp: SmtpServer, step: str, answer: str, kind: type[ButlersError]
) -> None:
    setattr(smtp, step, deque([answer]))
    with pytest.raises(ButlersError) as found:
        await sender(dovecot, smtp).send(delivery())
    assert type(found.value) is kind


async def test_wrong_password_and_unreachable_server(dovecot: Dovecot, smtp: SmtpServer) -> None:
    smtp.password = "another"
    with pytest.raises(CredentialRefused):
        await sender(dovecot, smtp).send(delivery())
    smtp.close()
    with pytest.raises(ChannelUnavailable):
        await sender(dovecot, smtp).send(delivery())


async def test_missing_sent_folder_does_not_fail_a_sent_mail(
    dovecot: Dovecot, smtp: SmtpServer
) -> None:
    await sender(dovecot, smtp, sent_folder="No such folder").send(delivery())
    assert len(smtp.mails) == 1


@pytest.mark.parametrize(
    "target",
    ["anna@example.com", "other:anna@example.com", "work:anna", "work:a@b.org, c@d.org",
     "work:a@b.org\r\nBcc: x@y.org", "work:<a@b.org>"],
)  # fmt: skip
async def test_wrong_target_is_refused(dovecot: Dovecot, smtp: SmtpServer, target: str) -> None:
    with pytest.raises(DeliveryRefused):
        await sender(dovecot, smtp).send(delivery(target=target))
    assert not smtp.mails


# -- tools of the Messenger ---------------------------------------------------------------------------


@pytest.fixture
async def messenger(make_butler: MakeButler, dovecot: Dovecot, smtp: SmtpServer) -> InProcessButler:
    made = make_butler("messenger")
    add_account(made, dovecot, smtp)
    await made.secret("MAIL_PASSWORD", PASSWORD)
    await made.start()
    return made


def add_account(made: InProcessButler, dovecot: Dovecot, smtp: SmtpServer) -> None:
    account = accounts(dovecot, smtp)["work"]
    fields = account.model_dump(exclude_none=True, exclude={"oauth", "name"})
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    with open(made.directory / "butler.toml", "a") as file:
        file.write("\n[channels.email.work]\n" + "\n".join(lines) + "\n")


async def test_sent_mail_is_a_delivery_that_waits_for_approval_of_a_new_recipient(
    messenger: InProcessButler, smtp: SmtpServer
) -> None:
    arguments = {"to": "anna@example.com", "subject": "Hi", "body": "Hello."}
    async with messenger.owner() as owner:
        first = await owner.call("email_send_message", arguments)
        assert first["status"] == "pending_approval"
        (action,) = (await owner.call("list_pending_actions"))["actions"]
        await owner.call("approve_action", {"action_id": action["id"]})
        second = await owner.call("bot_email_send_message", {**arguments, "body": "Again."})
    assert second["status"] == "delivered"
    assert second["message_id"] in [one["Message-ID"] for one in smtp.mails]


async def test_draft_is_kept_and_not_sent(
    messenger: InProcessButler, smtp: SmtpServer, dovecot: Dovecot
) -> None:
    arguments = {"to": "a@b.org", "thread_id": "<q@x>", "body": "Later.", "draft": True}
    async with messenger.owner() as owner:
        kept = await owner.call("email_reply_to_thread", arguments)
    (draft,) = dovecot.sources("Drafts")
    assert kept["message_id"].encode() in draft
    assert b"In-Reply-To: <q@x>" in draft
    assert not smtp.mails


async def test_mailbox_is_searched_and_read(messenger: InProcessButler, dovecot: Dovecot) -> None:
    dovecot.put(mail("lunch at noon?\n\nOn Monday, Ben wrote:\n> hm", subject="Lunch"))
    dovecot.put(mail("the invoice", sender="shop@example.org", subject="Invoice Ü"))
    async with messenger.owner() as owner:
        found = (await owner.call("email_search_inbox", {"query": "from:shop@example.org"}))[
            "messages"
        ]
        assert [one["subject"] for one in found] == ["Invoice Ü"]
        (one,) = (await owner.call("bot_email_search_inbox", {"query": "noon"}))["messages"]
        read = await owner.call("email_read_message", {"id": one["id"]})
        assert (read["text"], read["quoted"]) == (
            "lunch at noon?",
            "On Monday, Ben wrote:\n> hm",
        )
        none = await owner.call("email_search_inbox", {"query": "subject:nothing since:2026-01-01"})
        assert none == {"messages": []}
        with pytest.raises(ButlersError, match="not a date"):
            await owner.call("email_search_inbox", {"query": "since:yesterday"})
        name, validity, _, folder = one["id"].split("/")
        with pytest.raises(ButlersError, match="any more"):
            await owner.call("email_read_message", {"id": f"{name}/{validity}/9999/{folder}"})
