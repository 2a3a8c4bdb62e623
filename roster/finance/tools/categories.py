"""Categories of spending: built-in words, and the person's own rules, which come first."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, require_trusted_input, tool, uuid7

Category = Annotated[str, Field(min_length=1, max_length=40)]

OTHER = "other"
_WORDS = {
    "food": """
        food essen lebensmittel groceries grocery supermarket supermarkt einkauf lunch mittagessen dinner
        abendessen breakfast frühstück brunch coffee kaffee café cafe bakery bäcker bäckerei restaurant
        pizza burger sushi kebab döner snack snacks drinks beer bier bar wine wein market markt mensa canteen
        rewe edeka aldi lidl netto penny kaufland tesco sainsbury walmart safeway starbucks mcdonalds takeaway
        eis tea tee
        """,
    "housing": "housing wohnen rent miete mortgage hypothek furniture möbel ikea hausgeld",
    "utilities": """
        utilities nebenkosten electricity strom gas water wasser heating heizung internet phone telefon
        handy mobile power rundfunkbeitrag telekom vodafone
        """,
    "transport": """
        transport verkehr bus train zug bahn taxi uber bolt fuel petrol gasoline benzin tanken diesel parking
        parken ticket fahrkarte metro subway tram bike fahrrad car auto toll maut bvg
        """,
    "health": """
        health gesundheit doctor arzt dentist zahnarzt pharmacy apotheke medicine medikamente glasses brille
        gym fitness fitnessstudio physio
        """,
    "entertainment": """
        entertainment unterhaltung cinema kino movie film concert konzert netflix spotify disney game games
        spiele theater theatre museum book books buch bücher youtube
        """,
    "shopping": """
        shopping clothes kleidung shoes schuhe amazon zalando electronics elektronik
        """,
    "travel": "travel reisen reise hotel flight flug airbnb hostel booking lufthansa ryanair",
    "insurance": "insurance versicherung haftpflicht krankenversicherung",
    "education": "education bildung course kurs school schule university uni tuition",
    "gifts": "gifts gift geschenk geschenke present donation spende charity",
    "personal": "personal haircut friseur barber cosmetics kosmetik",
    "children": "children kinder kita daycare nursery toys spielzeug",
    "pets": "pets haustiere vet tierarzt",
    "taxes": "taxes tax steuer steuern finanzamt",
    "fees": "fees fee gebühr gebühren interest zinsen",
    "income": "income einkommen salary gehalt lohn wage wages bonus payroll",
}
_CATEGORY_OF = {word: name for name, words in _WORDS.items() for word in words.split()}
# Names of categories as a person may write them; other words, such as "lunch", only belong to one.
_NAMES = {name: name for name in (*_WORDS, OTHER)} | {
    "essen": "food",
    "lebensmittel": "food",
    "groceries": "food",
    "wohnen": "housing",
    "nebenkosten": "utilities",
    "verkehr": "transport",
    "mobilität": "transport",
    "gesundheit": "health",
    "unterhaltung": "entertainment",
    "freizeit": "entertainment",
    "reisen": "travel",
    "versicherung": "insurance",
    "versicherungen": "insurance",
    "bildung": "education",
    "geschenke": "gifts",
    "persönliches": "personal",
    "kinder": "children",
    "haustiere": "pets",
    "steuern": "taxes",
    "gebühren": "fees",
    "einkommen": "income",
    "sonstiges": OTHER,
}


@tool(callers=SESSIONS)
async def category_rule_save(
    ctx: CallContext, term: Annotated[str, Field(min_length=2, max_length=60)], category: Category
) -> dict[str, Any]:
    """Always put what contains the term into the category; also corrects what is stored."""
    require_trusted_input(ctx, "write category rules")
    word, name = " ".join(term.split()).casefold(), read_category(category)
    await ctx.connection.execute(
        """
        INSERT INTO category_rules (id, term, category) VALUES ($1, $2, $3)
        ON CONFLICT (term) DO UPDATE SET category = excluded.category
        """,
        uuid7(),
        word,
        name,
    )
    changed = await ctx.connection.fetch(
        """
        UPDATE transactions SET category = $2
        WHERE position($1 IN lower(description || ' ' || coalesce(merchant, ''))) > 0
          AND words @@ phraseto_tsquery('simple', $1) AND category <> $2 AND kind <> 'transfer'
        RETURNING id
        """,
        word,
        name,
    )
    text = f"From now on “{word}” is {name}; {len(changed)} stored entries moved."
    return {"term": word, "category": name, "changed": len(changed), "text": text}


def read_category(text: str) -> str:
    """Return the category's stored spelling. A slash makes a subcategory: "food/coffee"."""
    name = " ".join(text.split()).casefold().strip("/ ")
    if not name:
        raise InvalidArguments("the category is empty", hint='write "food" or "food/coffee"')
    return _NAMES.get(name, name)


def known_category(text: str) -> str | None:
    """Return the category that the word names, or None for other words such as "lunch"."""
    return _NAMES.get(" ".join(text.split()).casefold())


async def categorize(ctx: CallContext, *texts: str | None) -> str:
    """Return the category of a description: by the person's rules, else by the built-in words."""
    rules = await load_rules(ctx)
    return category_of(rules, *texts)


async def load_rules(ctx: CallContext) -> dict[str, str]:
    rows = await ctx.connection.fetch("SELECT term, category FROM category_rules")
    return {row["term"]: row["category"] for row in rows}


def category_of(rules: dict[str, str], *texts: str | None) -> str:
    words = " ".join(filter(None, texts)).casefold()
    pieces = "".join(char if char.isalnum() else " " for char in words).split()
    padded = f" {' '.join(pieces)} "
    for term in sorted(rules, key=len, reverse=True):
        if f" {term} " in padded:
            return rules[term]
    return next((_CATEGORY_OF[piece] for piece in pieces if piece in _CATEGORY_OF), OTHER)


TOOLS = (category_rule_save,)
