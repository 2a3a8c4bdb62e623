"""Contact cards: a person as an address book describes one, and the differences of two cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

WayKind = Literal["phone", "email", "address", "chat", "website", "other"]

MAX_VALUE = 200
MAX_NOTE = 2000
MAX_WAYS = 50
MAX_NAMES = 20


@dataclass(frozen=True, slots=True)
class ContactWay:
    """One way to reach a person."""

    kind: WayKind
    value: str
    label: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.value.casefold()


@dataclass(frozen=True, slots=True)
class CardDate:
    """A day of each year, such as a birthday."""

    label: str
    month: int
    day: int
    year: int | None = None


@dataclass(frozen=True, slots=True)
class ContactCard:
    """A person in an address book. An empty name says that nothing is known."""

    name: str
    aliases: tuple[str, ...] = ()
    company: str | None = None
    job: str | None = None
    ways: tuple[ContactWay, ...] = ()
    dates: tuple[CardDate, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    uid: str | None = None  # id that the card gives itself

    def fields(self) -> dict[str, Any]:
        """Return what a source is remembered to have said, as JSON."""
        return {
            "name": self.name,
            "aliases": list(self.aliases),
            "company": self.company,
            "job": self.job,
            "ways": [[way.kind, way.value, way.label] for way in self.ways],
            "dates": [[one.label, one.month, one.day, one.year] for one in self.dates],
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ContactCard:
        return cls(
            name=fields["name"],
            aliases=tuple(fields["aliases"]),
            company=fields["company"],
            job=fields["job"],
            ways=tuple(ContactWay(*way) for way in fields["ways"]),
            dates=tuple(CardDate(*one) for one in fields["dates"]),
        )


NOTHING = ContactCard(name="")


@dataclass(frozen=True, slots=True)
class CardChange:
    """Change of a person by one source: what the source said before and says now.

    The source owns what it said before; everything else stays as it is.
    """

    before: ContactCard
    after: ContactCard

    @property
    def lost_ways(self) -> list[ContactWay]:
        kept = {way.key for way in self.after.ways}
        return [way for way in self.before.ways if way.key not in kept]

    @property
    def new_ways(self) -> list[ContactWay]:
        known = {way.key: way.label for way in self.before.ways}
        return [way for way in self.after.ways if known.get(way.key, "\0") != way.label]

    @property
    def lost_dates(self) -> list[CardDate]:
        kept = {one.label for one in self.after.dates}
        return [one for one in self.before.dates if one.label not in kept]

    @property
    def new_dates(self) -> list[CardDate]:
        return [one for one in self.after.dates if one not in self.before.dates]

    @property
    def new_aliases(self) -> list[str]:
        return [alias for alias in self.after.aliases if alias not in self.before.aliases]

    @property
    def lost_aliases(self) -> list[str]:
        return [alias for alias in self.before.aliases if alias not in self.after.aliases]


def one_line(text: str | None, limit: int = MAX_VALUE) -> str | None:
    """Return the text on one line and not too long, or None if it is empty."""
    words = " ".join((text or "").replace("\0", " ").split())
    return words[:limit].strip() or None


def distinct(texts: list[str], name: str) -> tuple[str, ...]:
    """Return the texts without repetitions, empty ones and the name itself."""
    known = {name.casefold(): name}
    for text in texts:
        if (short := one_line(text)) is not None:
            known.setdefault(short.casefold(), short)
    return tuple(known.values())[1 : MAX_NAMES + 1]
