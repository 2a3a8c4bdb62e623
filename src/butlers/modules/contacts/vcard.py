"""vCards of versions 2.1, 3.0 and 4.0, read in time linear in their size.

Other people's programs write them, so every property is optional and a property that cannot be read is left
out. Lines may be folded, quoted-printable, in another character set, or all of these.
"""

from __future__ import annotations

import quopri
from collections.abc import Iterator
from datetime import date
from typing import cast

from butlers.modules.contacts.card import (
    MAX_NOTE,
    MAX_WAYS,
    CardDate,
    ContactCard,
    ContactWay,
    WayKind,
    distinct,
    one_line,
)

NO_YEAR = 1604  # stands for "no year" in vCards of Apple
MAX_PROPERTIES = 10_000  # of one card; the rest is left out
MAX_LINE = 1_000_000  # characters of an unfolded line; a longer one is a picture

Parameters = dict[str, str]
Property = tuple[str, Parameters, str]
Properties = dict[str, list[tuple[Parameters, str]]]

_WAYS = {"TEL": "phone", "EMAIL": "email", "IMPP": "chat", "URL": "website"}
_SCHEMES = ("tel:", "mailto:", "xmpp:", "x-apple:")
_PLAIN_TYPES = {"voice", "internet", "pref", "x-internet"}
_TYPE_NAMES = {"cell": "mobile"}
_DATES = (("BDAY", "birthday"), ("ANNIVERSARY", "anniversary"), ("X-ANNIVERSARY", "anniversary"))


def read_vcards(text: str) -> Iterator[ContactCard | None]:
    """Yield the people of a vCard file; None for a card without a name."""
    card: Properties = {}
    count = 0
    for name, parameters, value in unfold(text):
        if name == "BEGIN":
            card, count = {}, 0
        elif name == "END" and value.strip().upper() == "VCARD":
            yield _contact(card)
            card, count = {}, 0
        elif count < MAX_PROPERTIES:
            card.setdefault(name, []).append((parameters, value))
            count += 1


def unfold(text: str) -> Iterator[Property]:
    """Yield name, parameters and value of each line of a vCard or iCalendar file."""
    pending: list[str] = []
    for line in text.lstrip("\ufeff").splitlines():
        if pending and _continues(pending):
            pending[-1] = pending[-1][:-1]
            pending.append(line)
        elif pending and line[:1] in (" ", "\t"):
            pending.append(line[1:])
        else:
            if pending:
                yield _property("".join(pending))
            pending = [line]
    if pending:
        yield _property("".join(pending))


def _continues(lines: list[str]) -> bool:
    """Return whether a quoted-printable value goes on in the next line."""
    if not lines[-1].endswith("="):
        return False
    return "QUOTED-PRINTABLE" in lines[0][:200].upper()


def _property(line: str) -> Property:
    head, value = _split_head(line)
    name, *given = split_escaped(head, ";", quotes=True)
    parameters: Parameters = {}
    for one in given:
        key, found, setting = one.partition("=")
        kind = key.strip().upper() if found else "TYPE"
        setting = (setting if found else key).replace('"', "")
        parameters[kind] = f"{parameters.get(kind, '')} {setting}".strip()
    encoding = f"{parameters.get('ENCODING', '')} {parameters.get('TYPE', '')}".upper()
    if "QUOTED-PRINTABLE" in encoding:
        value = _decoded(value, parameters.get("CHARSET", "utf-8"))
    return name.rpartition(".")[2].strip().upper(), parameters, value


def _split_head(line: str) -> tuple[str, str]:
    """Split at the first colon that is not inside quotes."""
    if len(line) > MAX_LINE:
        line = line[:MAX_LINE]
    quoted = False
    for place, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == ":" and not quoted:
            return line[:place], line[place + 1 :]
    head, _, value = line.partition(":")
    return head, value


def _decoded(value: str, charset: str) -> str:
    raw = quopri.decodestring(value.encode("utf-8", "surrogatepass"))
    try:
        return raw.decode(charset, "replace")
    except (LookupError, UnicodeError):
        return raw.decode("utf-8", "replace")


def _contact(card: Properties) -> ContactCard | None:
    name = _first(card, "FN") or _structured_name(card)
    if name is None:
        return None
    organization = next(iter(_parts(card, "ORG")), None)
    return ContactCard(
        name=name,
        aliases=distinct(_parts(card, "NICKNAME", ","), name),
        company=one_line(organization),
        job=_first(card, "TITLE"),
        ways=tuple(_ways(card))[:MAX_WAYS],
        dates=tuple(_card_dates(card)),
        notes=tuple(
            cleaned
            for _, raw in card.get("NOTE", ())[:MAX_WAYS]
            if (cleaned := unescape(raw).replace("\0", " ").strip()[:MAX_NOTE])
        ),
        groups=distinct(_parts(card, "CATEGORIES", ","), ""),
        uid=_first(card, "UID"),
    )


def _first(card: Properties, name: str) -> str | None:
    return one_line(unescape(card[name][0][1])) if name in card else None


def _parts(card: Properties, name: str, mark: str = ";") -> list[str]:
    if name not in card:
        return []
    return [
        part for raw in split_escaped(card[name][0][1], mark) if (part := unescape(raw).strip())
    ]


def _structured_name(card: Properties) -> str | None:
    if "N" not in card:
        return one_line(next(iter(_parts(card, "ORG")), None))
    family, given, *_ = [*split_escaped(card["N"][0][1], ";"), "", ""]
    return one_line(f"{unescape(given)} {unescape(family)}")


def _ways(card: Properties) -> Iterator[ContactWay]:
    seen: set[tuple[str, str]] = set()
    for field, kind in _WAYS.items():
        for parameters, raw in card.get(field, ())[:MAX_WAYS]:
            way = _way(cast(WayKind, kind), unescape(raw), parameters)
            if way is not None and way.key not in seen:
                seen.add(way.key)
                yield way
    for parameters, raw in card.get("ADR", ())[:MAX_WAYS]:
        pieces = (unescape(part).strip() for part in split_escaped(raw, ";"))
        way = _way("address", ", ".join(filter(None, pieces)), parameters)
        if way is not None and way.key not in seen:
            seen.add(way.key)
            yield way


def _way(kind: WayKind, text: str, parameters: Parameters) -> ContactWay | None:
    value = one_line(text)
    if value is None:
        return None
    for scheme in _SCHEMES:
        if value.lower().startswith(scheme):
            value = value[len(scheme) :].partition(";")[0]
    return ContactWay(kind, value, _label(parameters)) if value else None


def _label(parameters: Parameters) -> str | None:
    """Return the first telling type of a property, such as "work" or "mobile"."""
    for one in parameters.get("TYPE", "").replace(",", " ").lower().split():
        if one not in _PLAIN_TYPES:
            return one_line(_TYPE_NAMES.get(one, one), 40)
    return None


def _card_dates(card: Properties) -> Iterator[CardDate]:
    labels: set[str] = set()
    for field, label in _DATES:
        found = read_contact_date(card[field][0][1]) if field in card else None
        if found is not None and label not in labels:
            labels.add(label)
            yield CardDate(label, found.month, found.day, found.year)


def read_contact_date(text: str) -> CardDate | None:
    """Return the day of "1990-05-04", "--0504" or "19900504", without a label."""
    value = text.strip()[:40].partition("T")[0]
    digits = "".join(char for char in value if char in "0123456789")
    year: int | None = None
    if value.startswith("--"):
        digits = digits[-4:]
    elif len(digits) == len("19900504"):
        year, digits = int(digits[:4]), digits[4:]
    if len(digits) != len("0504"):
        return None
    year = None if year == NO_YEAR else year
    try:
        day = date(year or 2000, int(digits[:2]), int(digits[2:]))
    except ValueError:
        return None
    return CardDate("", day.month, day.day, year)


def split_escaped(value: str, mark: str, *, quotes: bool = False) -> list[str]:
    """Split at marks that are neither escaped nor, with ``quotes``, inside quotes."""
    parts: list[str] = []
    start, escaped, quoted = 0, False, False
    for place, char in enumerate(value):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"' and quotes:
            quoted = not quoted
        elif char == mark and not quoted:
            parts.append(value[start:place])
            start = place + 1
    return [*parts, value[start:]]


def unescape(value: str) -> str:
    """Return the text with "\\n", "\\," and the like replaced by what they stand for."""
    if "\\" not in value:
        return value
    pieces: list[str] = []
    escaped = False
    for char in value:
        if escaped:
            pieces.append("\n" if char in "nN" else char if char in ",;:\\" else f"\\{char}")
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            pieces.append(char)
    return "".join([*pieces, "\\"] if escaped else pieces)
