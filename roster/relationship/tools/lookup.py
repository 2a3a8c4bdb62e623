"""Finding a person by name, alias or role, and relations in English and German."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import CallContext, uuid7

Row = Mapping[str, Any]

_FUZZY_NAMES = 2000
_GERMAN = {
    "schwester": "sister",
    "bruder": "brother",
    "mutter": "mother",
    "mama": "mother",
    "mum": "mother",
    "mom": "mother",
    "vater": "father",
    "papa": "father",
    "dad": "father",
    "oma": "grandmother",
    "großmutter": "grandmother",
    "grandma": "grandmother",
    "opa": "grandfather",
    "großvater": "grandfather",
    "grandpa": "grandfather",
    "tante": "aunt",
    "onkel": "uncle",
    "cousine": "cousin",
    "tochter": "daughter",
    "sohn": "son",
    "frau": "wife",
    "mann": "husband",
    "freundin": "girlfriend",
    "freund": "friend",
    "partnerin": "partner",
    "chef": "boss",
    "chefin": "boss",
    "kollege": "colleague",
    "kollegin": "colleague",
    "nachbar": "neighbor",
    "nachbarin": "neighbor",
    "neighbour": "neighbor",
    "arzt": "doctor",
    "ärztin": "doctor",
    "zahnarzt": "dentist",
    "zahnärztin": "dentist",
    "nichte": "niece",
    "neffe": "nephew",
}
_POSSESSIVES = ("my ", "meine ", "mein ", "meiner ", "meinem ", "meinen ")


def read_relation(text: str) -> str:
    """Return the relation's stored spelling: "my Schwester" is "sister"."""
    words = " ".join(text.split()).casefold()
    for lead in (*_POSSESSIVES, "the ", "a "):
        words = words.removeprefix(lead)
    return _GERMAN.get(words, words)


def read_name(text: str) -> str:
    name = " ".join(text.split()).strip(".,!?")
    if not name:
        raise InvalidArguments("the name is empty")
    return name


async def find_person(ctx: CallContext, text: str) -> Row:
    """Return the person. Raises NotFound, or InvalidArguments if several match."""
    found = await _matches(ctx, text)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row["name"] for row in found[:6])
        raise InvalidArguments(f"{text!r} may be one of: {names}", hint="say the full name")
    raise NotFound(f"I do not know {text!r}", hint=await _suggestion(ctx, text))


async def find_or_create(ctx: CallContext, text: str) -> tuple[Row, bool]:
    """Return the person and whether it is new. A name similar to a known one is asked back."""
    found = await _matches(ctx, text)
    if found:
        return (found[0] if len(found) == 1 else await find_person(ctx, text)), False
    if text.casefold().startswith(_POSSESSIVES):
        role = read_relation(text)
        raise NotFound(
            f"I do not know who your {role} is", hint=f'say, for example, "Anna is my {role}"'
        )
    name = read_name(text)
    if near := await _near(ctx, name):
        raise InvalidArguments(
            f"I do not know {name!r}; did you mean {' or '.join(near)}?",
            hint=f'say "new person {name}" if it is someone else',
        )
    return await insert_person(ctx, name), True


async def insert_person(ctx: CallContext, name: str) -> Row:
    row = await ctx.connection.fetchrow(
        "INSERT INTO people (id, name) VALUES ($1, $2) RETURNING *", uuid7(), name
    )
    assert row is not None
    return row


async def _matches(ctx: CallContext, text: str) -> Sequence[Row]:
    """Return the people of a role, of exactly this name, or with these words in their name."""
    words = " ".join(text.split()).strip(".,!?").casefold()
    if words.startswith(_POSSESSIVES):
        return await ctx.connection.fetch(
            """
            SELECT p.* FROM relations AS r JOIN people AS p ON p.id = r.person_id
            WHERE r.other_id IS NULL AND r.relation = $1 AND p.merged_into IS NULL ORDER BY p.name
            """,
            read_relation(words),
        )
    exact = await ctx.connection.fetch(
        """
        SELECT * FROM people WHERE merged_into IS NULL AND id IN (
            SELECT id FROM people WHERE lower(name) = $1
            UNION ALL SELECT person_id FROM aliases WHERE lower(alias) = $1
        ) ORDER BY name LIMIT 7
        """,
        words,
    )
    return exact or await _by_words(ctx, words)


async def _by_words(ctx: CallContext, words: str) -> Sequence[Row]:
    pieces = "".join(char if char.isalnum() else " " for char in words).split()
    if not pieces:
        return []
    return await ctx.connection.fetch(
        """
        SELECT * FROM people
        WHERE merged_into IS NULL AND words @@ to_tsquery('simple', $1)
          AND to_tsvector('simple', name) @@ to_tsquery('simple', $1)
        ORDER BY name LIMIT 7
        """,
        " & ".join(pieces),
    )


async def _near(ctx: CallContext, name: str) -> list[str]:
    """Return known names that differ only by a typo."""
    first = name[:1].casefold()
    rows = await ctx.connection.fetch(
        """
        SELECT name FROM people WHERE merged_into IS NULL AND lower(name) LIKE $1 || '%'
        ORDER BY lower(name) LIMIT $2
        """,
        first,
        _FUZZY_NAMES,
    )
    known = {row["name"].casefold(): row["name"] for row in rows}
    known |= {row["name"].split()[0].casefold(): row["name"] for row in rows}
    wanted = name.casefold()
    swapped = [one for one in known if one != wanted and sorted(one) == sorted(wanted)]
    near = swapped or get_close_matches(wanted, known, n=3, cutoff=0.8)
    return list(dict.fromkeys(known[one] for one in near))


async def _suggestion(ctx: CallContext, text: str) -> str:
    near = await _near(ctx, read_name(text))
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f'add the person first: "new person {read_name(text)}"'
