"""Configuration of the contacts module: ``[modules.contacts]`` in butler.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from butlers.config.values import ConfigTable, Text, WebUrl
from butlers.domain.json_safe import FrozenDict, freeze
from butlers.modules.base import ModuleConfig
from butlers.wire.oauth import GOOGLE_TOKEN_URL

PEOPLE_API = "https://people.googleapis.com"
AccountName = Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,29}$")]


class CarddavAccount(ConfigTable):
    url: WebUrl
    """Address of the address book."""
    user: Text
    secret: Text
    """Name of the stored secret with the password."""


class GoogleContactsAccount(ConfigTable):
    address: Text
    """Address of the Google account."""
    client_id: Text
    secret: Text
    """Name of the stored secret with the refresh token."""
    client_secret: Text | None = None
    """Name of the stored secret with the secret of the OAuth client, if it has one."""
    api_url: WebUrl = PEOPLE_API
    token_url: WebUrl = GOOGLE_TOKEN_URL


class ContactsConfig(ModuleConfig):
    region: Annotated[str, Field(pattern="^[A-Z]{2}$")] | None = None
    """Country of phone numbers without a country code, such as `DE`; the default is that of the time zone."""
    mailbox: AccountName = "mail"
    """Mailbox that writes to a person by mail."""
    interval_minutes: Annotated[float, Field(gt=0, le=10_080)] = 15
    """Time between two synchronizations of an address book."""
    full_days: Annotated[float, Field(gt=0, le=365)] = 6
    """Time between two full synchronizations; those between them fetch only changes."""
    carddav: Annotated[Mapping[AccountName, CarddavAccount], AfterValidator(freeze)] = FrozenDict()
    """Address books on CardDAV servers; `butlers connect carddav` writes them."""
    google: Annotated[Mapping[AccountName, GoogleContactsAccount], AfterValidator(freeze)] = (
        FrozenDict()
    )
    """Google accounts; `butlers connect google` writes them."""
