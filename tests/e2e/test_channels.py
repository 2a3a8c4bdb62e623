"""Telegram and email through the whole fleet: connected by commands, answered by a CLI with a fake model."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import npm
from support.bot_api import TOKEN, BotApiServer
from support.dovecot import ADDRESS, PASSWORD, SERVER, Dovecot, mail, running_dovecot
from support.fake_model import ModelThread, Say, Use, in_prompt
from support.fleet import BUTLERS, Fleet, butlers_environment, command, wait_for
from support.radicale import PASSWORD as DAV_PASSWORD
from support.radicale import USER, running_radicale, vcard
from support.radicale_calendar import RadicaleCalendar
from support.smtp_server import SmtpServer

OWNER = 7


@pytest.fixture(scope="module")
def telegram() -> Iterator[BotApiServer]:
    server = BotApiServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@pytest.fixture(scope="module")
def smtp(dovecot: Dovecot) -> Iterator[SmtpServer]:
    server = SmtpServer()
    server.on_mail = dovecot.put
    yield server
    server.on_mail = None
    server.close()


@pytest.fixture(scope="module")
def connected(
    template_home: Path, telegram: BotApiServer, dovecot: Dovecot, smtp: SmtpServer
) -> Iterator[Fleet]:
    """A fleet whose home has been connected by the commands, running, with a model for general."""
    programs = npm.installed("clis")
    fleet = Fleet.copy_of(template_home)
    with ModelThread() as thinking:
        try:
            connect_telegram(fleet, telegram)
            connect_email(fleet, dovecot, smtp)
            fleet.environments["general"] = {
                "ANTHROPIC_API_KEY": "a-key-for-tests",
                "ANTHROPIC_BASE_URL": thinking.model.url,
                "PATH": f"{programs}:{os.environ['PATH']}",
            }
            for name in BUTLERS:
                fleet.start(name)
            for name in BUTLERS:
                fleet.wait_healthy(name)
            yield fleet
        finally:
            fleet.close()


def connect_telegram(fleet: Fleet, server: BotApiServer) -> None:
    """Run the command, and send the code that it shows from the owner's account."""
    process = subprocess.Popen(
        command("connect", "telegram", "--secret-stdin", "--api-url", server.url, "--wait-s", "60"),
        env=butlers_environment(fleet.home, fleet.slot.offset),
        cwd=fleet.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{TOKEN}\n")
    process.stdin.flush()
    code = ""
    for line in process.stdout:
        if "Send this code" in line:
            code = line.rsplit(": ", 1)[1].strip()
            break
    server.says(8, "000000" if code != "000000" else "000001")  # somebody else guesses
    server.says(OWNER, f"/start {code}")
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Paired with" in rest
    assert TOKEN not in rest + errors
    assert server.texts(OWNER)[0].startswith("This chat is paired")


def connect_email(fleet: Fleet, dovecot: Dovecot, smtp: SmtpServer) -> None:
    done = fleet.butlers(
        "connect", "email", ADDRESS, "--name", "work", "--secret-stdin",
        "--imap-host", "127.0.0.1", "--imap-port", str(dovecot.port), "--imap-security", "plain",
        "--smtp-host", "127.0.0.1", "--smtp-port", str(smtp.port), "--smtp-security", "plain",
        "--auth-server", SERVER, "--history-days", "10",
        stdin=f"{PASSWORD}\n".encode(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "The mail came back: <butlers." in done.stdout
    assert "no model reads them" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_ten_turns_over_telegram_are_answered_in_order(
    connected: Fleet, telegram: BotApiServer
) -> None:
    chat = telegram.chat(OWNER)
    before = len(chat.sent)
    for turn in range(10):
        script = in_prompt(Use("notify", message=f"Answer {turn}.", intent="reply"), Say("ok"))
        asked = time.monotonic()
        number = telegram.says(OWNER, f"question {turn} {script}")
        wait_for(f"turn {turn} to be seen", lambda n=number: "👀" in chat.reactions.get(n, ()))
        wait_for(f"answer {turn}", lambda t=turn: len(chat.sent) > before + t)
        sent = chat.sent[before + turn]
        assert sent["text"] == f"Answer {turn}."
        assert sent["reply_parameters"]["message_id"] == number
        assert asked < sent["at"]
        wait_for(f"turn {turn} to be done", lambda n=number: "👍" in chat.reactions[n])
    ended_well = (
        "SELECT 1 FROM general.sessions WHERE outcome = 'ok'"  # a bit later than its answer
    )
    wait_for("ten sessions to end well", lambda: len(connected.rows(ended_well)) >= 10)


@pytest.mark.timeout(300)
def test_mail_of_the_owner_is_answered_by_mail(
    connected: Fleet, dovecot: Dovecot, smtp: SmtpServer
) -> None:
    sent = len(smtp.mails)
    script = in_prompt(Use("notify", message="It is on the list.", intent="reply"), Say("ok"))
    asked = mail(
        f"we need milk {script}", sender=ADDRESS, subject="Shopping", message_id="<ask@example.org>"
    )
    dovecot.put(asked)
    answer = wait_for("the answer", lambda: smtp.mails[sent] if len(smtp.mails) > sent else None)
    assert (answer["To"], answer["Subject"]) == (ADDRESS, "Re: Shopping")
    assert answer["In-Reply-To"] == answer["References"] == "<ask@example.org>"
    (row,) = wait_for(
        "the receipt",
        lambda: connected.rows(
            "SELECT provider_message_id FROM messenger.deliveries"
            " WHERE channel = 'email' AND state = 'delivered'"
        ),
    )
    assert row["provider_message_id"] == answer["Message-ID"]
    # Our own mail in the mailbox is stored, and not answered.
    stored = wait_for(
        "our own mail to be read",
        lambda: connected.rows(
            "SELECT state, state_reason FROM switchboard.message_inbox WHERE event_id = $1",
            answer["Message-ID"],
        ),
    )
    assert stored[0]["state"] == "skipped"


@pytest.mark.timeout(300)
def test_delivery_to_a_new_recipient_is_approved_by_a_telegram_button(
    connected: Fleet, telegram: BotApiServer, smtp: SmtpServer
) -> None:
    chat = telegram.chat(OWNER)
    before, mails = len(chat.sent), len(smtp.mails)
    arguments = {"message": "Dear Anna", "channel": "email", "recipient": "work:anna@example.com"}
    connected.call("health", "notify", arguments)

    def asked() -> dict[str, object] | None:
        return next((one for one in chat.sent[before:] if one.get("reply_markup")), None)

    question = wait_for("the question", asked)
    assert len(smtp.mails) == mails
    telegram.presses(8, OWNER, question["message_id"], "Yes")  # type: ignore[arg-type]
    telegram.presses(OWNER, OWNER, question["message_id"], "Yes")  # type: ignore[arg-type]
    sent = wait_for("the mail", lambda: smtp.mails[mails] if len(smtp.mails) > mails else None)
    assert sent["To"] == "anna@example.com"
    presses = connected.rows(
        "SELECT sender, state FROM switchboard.message_inbox WHERE text LIKE '/yes%'"
        " ORDER BY received_at"
    )
    assert [tuple(row) for row in presses] == [("8", "skipped"), (str(OWNER), "accepted")]


def test_address_book_and_calendar_are_connected_and_disconnected(connected: Fleet) -> None:
    home, secret = connected.home / "butlers", f"{DAV_PASSWORD}\n".encode()
    with running_radicale() as server:
        server.put_card(server.make_address_book("friends"), "a", vcard("a", "Anna Example"))
        RadicaleCalendar(server)
        wrong = connected.butlers(
            "connect", "carddav", server.url, USER, "--secret-stdin", stdin=b"x\n"
        )
        assert wrong.returncode == 1
        assert "hint" in wrong.stderr
        people = connected.butlers(
            "connect", "carddav", server.url, USER, "--secret-stdin", stdin=secret
        )
        assert people.returncode == 0, people.stderr
        assert "Connected: friends, 1 contacts" in people.stdout
        events = connected.butlers(
            "connect", "caldav", server.url, USER, "--secret-stdin", stdin=secret
        )
        assert events.returncode == 0, events.stderr
        assert "Connected: " in events.stdout
    said = people.stdout + people.stderr + events.stdout + events.stderr
    assert DAV_PASSWORD not in said
    assert "[modules.contacts.carddav.carddav]" in (home / "relationship.toml").read_text()
    assert "[modules.calendar.accounts.caldav]" in (home / "general.toml").read_text()

    assert connected.butlers("disconnect", "carddav").returncode == 0
    assert connected.butlers("disconnect", "calendar", "--name", "caldav").returncode == 0
    assert "carddav" not in (home / "relationship.toml").read_text()
    assert "caldav" not in (home / "general.toml").read_text()
    assert "DAV_" not in connected.butlers("secrets", "list").stdout


def test_disconnect_removes_configuration_and_secret(connected: Fleet) -> None:
    home = connected.home / "butlers"
    assert "[connectors.email.work]" in (home / "switchboard.toml").read_text()
    assert connected.butlers("disconnect", "email", "--name", "work").returncode == 0
    assert connected.butlers("disconnect", "telegram").returncode == 0
    assert "email.work" not in (home / "switchboard.toml").read_text()
    assert "telegram" not in (home / "messenger.toml").read_text()
    listed = connected.butlers("secrets", "list").stdout
    assert "EMAIL_WORK" not in listed
    assert "TELEGRAM_BOT_TOKEN" not in listed
