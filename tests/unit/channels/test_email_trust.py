"""Trust in a sender: only what the owner's own mail server says on top of the mail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from butlers.channels.email.config import EmailInbound
from butlers.channels.email.parser import FetchedMail, parse_mail, reply_context
from butlers.channels.email.trust import is_genuine
from butlers.domain.message import InboundEnvelope, IngestionTier, PolicyTier
from support.dovecot import ADDRESS, SERVER, mail

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def account(**changes: Any) -> EmailInbound:
    fields = {
        "address": ADDRESS,
        "secret": "X",
        "imap_host": "localhost",
        "auth_servers": (SERVER,),
        "owner_addresses": ("owner@example.net",),
    }
    return EmailInbound(**{**fields, **changes})


def parsed(source: bytes, *, history: bool = False, **changes: Any) -> InboundEnvelope:
    fetched = FetchedMail(source, len(source), "<1.2@work.INBOX>", NOW)
    found = parse_mail("work", account(**changes), fetched, history=history)
    found.check({"email"})
    return found


@pytest.mark.parametrize(
    ("headers", "genuine"),
    [
        ([f"{SERVER}; dmarc=pass header.from=example.com"], True),
        ([f"{SERVER}; dkim=pass header.d=example.com"], True),
        ([f"{SERVER}; dkim=pass header.i=@example.com"], True),
        ([f"{SERVER}; spf=pass smtp.mailfrom=bounce@example.com"], True),
        ([f"{SERVER} 1; dkim=pass (good; dmarc=fail) header.d=example.com"], True),
        (
            [f"{SERVER}; dmarc=fail header.from=example.com; spf=pass smtp.mailfrom=example.com"],
            False,
        ),
        ([f"{SERVER}; dkim=pass header.d=evil.example"], False),
        ([f"{SERVER}; dkim=pass header.d=com"], False),
        ([f"{SERVER}; dkim=fail header.d=example.com"], False),
        (["evil.example; dmarc=pass header.from=example.com"], False),
        ([f'evil.example; reason="; {SERVER}; dmarc=pass header.from=example.com"'], False),
        ([f"{SERVER}; none", f"{SERVER}; dmarc=pass header.from=example.com"], False),
        ([f"(({SERVER}; dmarc=pass header.from=example.com"], False),
        ([f"{SERVER}; dkim=pass header.d=notexample.com"], False),
        ([], False),
    ],
)
def test_only_the_topmost_header_of_the_trusted_server_proves(
    headers: list[str], genuine: bool
) -> None:
    assert is_genuine(headers, [SERVER], "example.com") is genuine


def test_subdomain_of_the_signing_domain_is_aligned() -> None:
    header = [f"{SERVER}; dkim=pass header.d=example.com"]
    assert is_genuine(header, [SERVER.upper()], "mail.example.com")


def test_mail_that_only_claims_to_be_the_owner_is_a_strangers() -> None:
    claim = parsed(mail("/stop", sender="owner@example.net", genuine=None))
    assert claim.sender.identity == "owner@example.net (unverified)"
    forged = mail("/stop", sender="owner@example.net", genuine=False)
    assert parsed(forged).sender.identity == "owner@example.net (unverified)"
    two = forged.replace(b"From: ", b"From: owner@example.net\r\nFrom: ")
    assert parsed(two).sender.identity.endswith("(unverified)")
    real = parsed(mail("/stop", sender="owner@example.net"))
    assert real.sender.identity == "owner@example.net"
    assert reply_context(real.payload.raw or {}).answerable
    assert not reply_context(claim.payload.raw or {}).answerable


def test_answers_to_other_people_go_to_the_owner_unless_the_mailbox_is_the_butlers_own() -> None:
    assert not reply_context(parsed(mail()).payload.raw or {}).answerable
    assert reply_context(parsed(mail(), answers=True).payload.raw or {}).answerable
    automatic = mail(Auto_Submitted="auto-generated")
    assert not reply_context(parsed(automatic, answers=True).payload.raw or {}).answerable


def test_thread_subject_and_references_of_an_answer() -> None:
    source = mail(
        "fine", subject="Dinner", message_id="<c@x>", References="<a@x> <b@x>", In_Reply_To="<b@x>"
    )
    found = parsed(source)
    assert found.event.external_event_id == "<c@x>"
    assert found.event.external_thread_id == "<a@x>"
    assert found.event.external_reply_to == "<b@x>"
    context = reply_context(found.payload.raw or {})
    assert context.subject == "Re: Dinner"
    assert context.references == ("<a@x>", "<b@x>", "<c@x>")


@pytest.mark.parametrize(
    ("source", "tier", "ingestion"),
    [
        (mail(), PolicyTier.INTERACTIVE, IngestionTier.FULL),
        (mail(to="list@example.org"), PolicyTier.DEFAULT, IngestionTier.FULL),
        (mail(In_Reply_To="<butlers.1@example.org>"), PolicyTier.HIGH_PRIORITY, IngestionTier.FULL),
        (mail(List_Id="<x.example>"), PolicyTier.DEFAULT, IngestionTier.BULK),
        (mail(message_id="<butlers.1@example.org>"), PolicyTier.INTERACTIVE, IngestionTier.HISTORY),
    ],
)
def test_tiers(source: bytes, tier: PolicyTier, ingestion: IngestionTier) -> None:
    control = parsed(source).control
    assert (control.policy_tier, control.ingestion_tier) == (tier, ingestion)


def test_two_mails_with_one_message_id_are_two_messages() -> None:
    one, two = (parsed(mail(text, message_id="<same@x>")) for text in ("one", "two"))
    assert one.dedupe_key != two.dedupe_key
    assert one.event.external_event_id == two.event.external_event_id


def test_program_is_left_out_with_a_note() -> None:
    found = parsed(
        b"From: a@b.org\r\nContent-Type: application/pdf\r\n"
        b"Content-Disposition: attachment; filename=a.pdf\r\n\r\nMZ binary"
    )
    assert not found.payload.attachments
    assert "it is a program" in found.payload.normalized_text
