"""Settings of mail providers, so that connecting a mailbox asks only for an address and a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from butlers.wire.oauth import GOOGLE_AUTHORIZE_URL, GOOGLE_TOKEN_URL, OAuthPreset


@dataclass(frozen=True, slots=True)
class MailPreset:
    name: str
    domains: tuple[str, ...]
    imap_host: str
    smtp_host: str
    auth_servers: tuple[str, ...]
    password_hint: str
    imap_port: int = 993
    imap_security: Literal["tls", "starttls", "plain"] = "tls"
    smtp_port: int = 465
    smtp_security: Literal["tls", "starttls", "plain"] = "tls"
    sent_folder: str | None = None
    oauth: OAuthPreset | None = None
    needs_oauth: bool = False


PRESETS = (
    MailPreset(
        "gmail",
        ("gmail.com", "googlemail.com"),
        "imap.gmail.com",
        "smtp.gmail.com",
        ("mx.google.com",),
        "an app password: https://myaccount.google.com/apppasswords",
        oauth=OAuthPreset(
            GOOGLE_AUTHORIZE_URL,
            GOOGLE_TOKEN_URL,
            "https://mail.google.com/",
        ),
    ),
    MailPreset(
        "outlook",
        ("outlook.com", "hotmail.com", "live.com", "msn.com"),
        "outlook.office365.com",
        "smtp-mail.outlook.com",
        (),  # Microsoft writes no name of its server
        "Microsoft accepts no passwords: sign in with a browser",
        smtp_port=587,
        smtp_security="starttls",
        oauth=OAuthPreset(
            "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
            "https://login.microsoftonline.com/common/oauth2/v2.0/token",
            "offline_access https://outlook.office.com/IMAP.AccessAsUser.All"
            " https://outlook.office.com/SMTP.Send",
        ),
        needs_oauth=True,
    ),
    MailPreset(
        "fastmail",
        ("fastmail.com", "fastmail.fm"),
        "imap.fastmail.com",
        "smtp.fastmail.com",
        ("mx.messagingengine.com",),
        "an app password: https://app.fastmail.com/settings/security/apps",
        sent_folder="Sent",
    ),
    MailPreset(
        "icloud",
        ("icloud.com", "me.com", "mac.com"),
        "imap.mail.me.com",
        "smtp.mail.me.com",
        ("dmarc.icloud.com", "dkim-verifier.icloud.com", "spf.icloud.com"),
        "an app-specific password: https://account.apple.com",
        smtp_port=587,
        smtp_security="starttls",
        sent_folder="Sent Messages",
    ),
    MailPreset(
        "proton",
        ("proton.me", "protonmail.com", "pm.me"),
        "127.0.0.1",
        "127.0.0.1",
        ("mail.protonmail.ch",),
        "the password that Proton Mail Bridge shows",
        imap_port=1143,
        imap_security="plain",
        smtp_port=1025,
        smtp_security="plain",
    ),
)


def preset_named(name: str) -> MailPreset | None:
    return next((one for one in PRESETS if one.name == name), None)


def preset_for(address: str) -> MailPreset | None:
    """Return the provider of an address, if its domain is one of the provider's own."""
    domain = address.rpartition("@")[2].lower()
    return next((one for one in PRESETS if domain in one.domains), None)
