"""Address books: vCards, Google contacts as CSV, and birthdays in a calendar file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from butlers.imports.bank_csv import split_rows
from butlers.imports.model import FileReading, Row, Skipped, content_key, note, short
from butlers.modules.contacts.card import CardDate, ContactCard
from butlers.modules.contacts.vcard import read_contact_date, unescape, unfold
from butlers.modules.contacts.vcard import read_vcards as read_cards


def read_vcards(text: str) -> FileReading | None:
    if not text.lstrip("\ufeff \r\n")[:20].upper().startswith("BEGIN:VCARD"):
        return None
    return _people("contacts (vCard)", lambda skipped: _vcard_rows(text, skipped))


def read_google_contacts(text: str) -> FileReading | None:
    """Return the reading of a CSV from Google Takeout or Google Contacts, or None."""
    header = next(iter(split_rows(text.lstrip("\ufeff")[:20_000], ",")), [])
    names = {name.strip() for name in header}
    if not {"Given Name", "First Name"} & names or not any("Value" in name for name in names):
        return None
    return _people("contacts (Google CSV)", lambda skipped: _google_rows(text, skipped))


def read_calendar(text: str) -> FileReading | None:
    """Return the birthdays of a calendar file, or None. Other entries are counted as left out."""
    if not text.lstrip("\ufeff \r\n")[:20].upper().startswith("BEGIN:VCALENDAR"):
        return None
    return _people("calendar (ICS): birthdays", lambda skipped: _calendar_rows(text, skipped))


def _people(kind: str, rows: Any) -> FileReading:
    return FileReading(kind, "relationship", "relationship_import", "people", rows, trusted=True)


def _vcard_rows(text: str, skipped: Skipped) -> Iterator[Row]:
    for card in read_cards(text):
        if card is None:
            skipped.add("cards without a name")
        else:
            yield _vcard_row(card)


def _vcard_row(card: ContactCard) -> Row:
    values = sorted(way.value for way in card.ways)[:1]
    return _row(
        content_key("vcard", card.uid or (card.name, *values)),
        card.name,
        aliases=card.aliases,
        company=card.company,
        job=card.job,
        contacts=[asdict(way) for way in card.ways],
        dates=[_date_row(one.label, one) for one in card.dates],
        notes=list(card.notes),
        groups=card.groups,
    )


def _date_row(label: str, day: CardDate) -> Row:
    return {
        "label": label,
        "month": day.month,
        "day": day.day,
        **({"year": day.year} if day.year else {}),
    }


def _google_rows(text: str, skipped: Skipped) -> Iterator[Row]:
    lines = split_rows(text.lstrip("\ufeff"), ",")
    header = [name.strip() for name in next(lines, [])]
    for cells in lines:
        fields = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
        row = _google_row(fields)
        if row is not None:
            yield row
        elif any(fields.values()):
            skipped.add("contacts without a name")


def _google_row(fields: Mapping[str, str]) -> Row | None:
    given = fields.get("Given Name") or fields.get("First Name", "")
    family = fields.get("Family Name") or fields.get("Last Name", "")
    name = short(fields.get("Name") or f"{given} {family}")
    if name is None:
        return None
    ways = []
    for field, value in fields.items():
        kind = next(
            (k for start, k in _GOOGLE.items() if field.startswith(start) and _is_value(field)),
            None,
        )
        if kind and value:
            ways += [
                {"kind": kind, "value": one}
                for part in value.split(" ::: ")
                if (one := short(part))
            ]
    birthday = read_contact_date(fields.get("Birthday", ""))
    groups = fields.get("Group Membership") or fields.get("Labels", "")
    note_text = note(fields.get("Notes"))
    return _row(
        content_key("google", name, *sorted(str(way["value"]) for way in ways)[:1]),
        name,
        aliases=[fields.get("Nickname", "")],
        company=fields.get("Organization 1 - Name") or fields.get("Organization Name"),
        job=fields.get("Organization 1 - Title") or fields.get("Organization Title"),
        contacts=ways,
        dates=[_date_row("birthday", birthday)] if birthday else [],
        notes=[note_text] if note_text else [],
        groups=[
            g.strip().removeprefix("* ") for g in groups.split(" ::: ") if "myContacts" not in g
        ],
    )


_GOOGLE = {"E-mail": "email", "Phone": "phone", "Address": "address", "Website": "website"}


def _is_value(field: str) -> bool:
    return field.endswith((" - Value", " - Formatted"))


def _calendar_rows(text: str, skipped: Skipped) -> Iterator[Row]:
    fields: dict[str, str] = {}
    for name, _parameters, value in unfold(text):
        if name == "BEGIN" and value.strip().upper() in ("VEVENT", "VTODO"):
            fields = {}
        elif name == "END" and value.strip().upper() in ("VEVENT", "VTODO"):
            row = _birthday(fields)
            if row is None:
                skipped.add("calendar entries, because no butler keeps a calendar yet")
            else:
                yield row
        else:
            fields.setdefault(name, value)


def _birthday(fields: Mapping[str, str]) -> Row | None:
    """Return the person of a yearly event such as "Alice's birthday" or "Geburtstag von Alice"."""
    if "YEARLY" not in fields.get("RRULE", "").upper():
        return None
    title = " ".join(unescape(fields.get("SUMMARY", "")).split())
    folded = title.casefold()
    name = None
    for end in ("'s birthday", "’s birthday", " hat geburtstag"):
        if folded.endswith(end):
            name = title[: -len(end)]
    for start in ("birthday of ", "birthday: ", "geburtstag von ", "geburtstag: "):
        if folded.startswith(start):
            name = title[len(start) :]
    when = read_contact_date(fields.get("DTSTART", ""))
    if not name or when is None:
        return None
    # A calendar repeats from the year of the first entry, which is often not the year of birth.
    day = {"month": when.month, "day": when.day}
    return _row(content_key("ics", name, day), name, dates=[{"label": "birthday", **day}])


def _row(key: str, name: str, **fields: Any) -> Row:
    for texts in ("aliases", "groups"):
        kept = dict.fromkeys(filter(None, (short(unescape(t)) for t in fields.get(texts, ()))))
        fields[texts] = [text for text in kept if text.casefold() != name.casefold()][:20]
    for text in ("company", "job"):
        fields[text] = short(unescape(fields.get(text) or ""))
    ways = fields.get("contacts", ())
    fields["contacts"] = [{k: v for k, v in way.items() if v} for way in ways][:50]
    return {"key": key, "name": name, **{k: v for k, v in fields.items() if v}}
