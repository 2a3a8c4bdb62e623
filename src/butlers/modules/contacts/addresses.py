"""Addresses in the form in which they are compared: mail in lower case, phone numbers in E.164."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources

MAX_PHONE = 40  # characters


def comparable(kind: str, value: str, region: str | None) -> str | None:
    """Return the address in the form in which it is compared, or None if it identifies nobody.

    ``region`` is that of phone numbers without a country code, for example "DE".
    """
    text = value.strip()
    if kind == "email":
        return text.casefold() if text.count("@") == 1 and " " not in text else None
    if kind == "phone":
        return _phone(text, region)
    if kind == "chat":
        return text.casefold() or None
    return None


@lru_cache(maxsize=4096)
def _phone(text: str, region: str | None) -> str | None:
    import phonenumbers  # large, and needed only once a number is stored

    if len(text) > MAX_PHONE:
        return None
    if text.startswith("00"):
        text = f"+{text[2:]}"
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(number):
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def region_of_zone(zone: str) -> str | None:
    """Return the country of a time zone, or None for one without a country, such as UTC."""
    return _zone_countries().get(zone)


@cache
def _zone_countries() -> dict[str, str]:
    table = resources.files("tzdata").joinpath("zoneinfo", "zone.tab").read_text("utf-8")
    rows = (line.split("\t") for line in table.splitlines() if not line.startswith("#"))
    return {row[2]: row[0] for row in rows}
