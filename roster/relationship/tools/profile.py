"""The tool that tells all that is known about a person."""

from __future__ import annotations

from typing import Any

from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool

from .dates import date_words, next_date
from .lookup import Row, find_person
from .people import shown_person
from .settings import PersonText, ago_words, today_of

NOTES = 5

_QUERIES = {
    "aliases": "SELECT alias AS text, sender, trust FROM aliases WHERE person_id = $1 ORDER BY alias",
    "contacts": """
        SELECT id, kind, value, label, sender, trust FROM contact_ways WHERE person_id = $1 ORDER BY kind, id
        """,
    "dates": """
        SELECT id, label, month, day, year, sender, trust FROM person_dates WHERE person_id = $1
        ORDER BY label
        """,
    "notes": f"""
        SELECT id, text, noted_on, sender, trust FROM person_notes WHERE person_id = $1
        ORDER BY noted_on DESC, id DESC LIMIT {NOTES}
        """,
    "interactions": """
        SELECT kind, happened_at, summary, sender, trust FROM interactions WHERE person_id = $1
        ORDER BY happened_at DESC, id DESC LIMIT 1
        """,
    "relations": """
        SELECT r.relation, o.name AS other, r.sender, r.trust
        FROM relations AS r LEFT JOIN people AS o ON o.id = r.other_id WHERE r.person_id = $1 ORDER BY r.id
        """,
    "groups": """
        SELECT g.name, g.sender, g.trust FROM group_members AS m JOIN groups AS g ON g.id = m.group_id
        WHERE m.person_id = $1 ORDER BY g.name
        """,
    "loans": """
        SELECT direction, shown, amount, repaid, currency, item, sender, trust FROM loans
        WHERE person_id = $1 AND settled_on IS NULL ORDER BY lent_on
        """,
    "gifts": """
        SELECT what, status, sender, trust FROM gifts WHERE person_id = $1 AND status IN ('idea', 'bought')
        ORDER BY id DESC LIMIT 5
        """,
}


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def person_show(ctx: CallContext, person: PersonText) -> dict[str, Any]:
    """Tell what is known about a person: contacts, dates, notes, last contact, loans, gift ideas."""
    row = await find_person(ctx, person)
    found = {name: await ctx.connection.fetch(sql, row["id"]) for name, sql in _QUERIES.items()}
    shown: dict[str, Any] = {
        name: [_shown(ctx, name, one) for one in rows] for name, rows in found.items() if rows
    }
    if row["stay_in_touch_days"]:
        shown["stay_in_touch_days"] = row["stay_in_touch_days"]
    lines = [_headline(row, found), *_details(ctx, row, found)]
    return {**shown_person(ctx, row), **shown, "text": "\n".join(lines)}


def _shown(ctx: CallContext, name: str, row: Row) -> dict[str, Any]:
    values = {
        key: str(value) if key in ("id", "noted_on", "amount", "repaid") else value
        for key, value in row.items()
        if value is not None and key not in ("sender", "trust", "happened_at")
    }
    if name == "interactions":
        values["at"] = row["happened_at"].astimezone(ctx.zone).isoformat(timespec="minutes")
    return {**values, **shown_source(ctx, row)}


def _headline(row: Row, found: dict[str, list[Row]]) -> str:
    roles = [
        f"{one['other']}’s {one['relation']}" if one["other"] else f"your {one['relation']}"
        for one in found["relations"]
    ]
    work = ", ".join(filter(None, (row["job"], row["company"])))
    also = ", ".join(one["text"] for one in found["aliases"])
    parts = [*roles, work, f"also {also}" if also else ""]
    more = "; ".join(filter(None, parts))
    return f"{row['name']}: {more}" if more else str(row["name"])


def _details(ctx: CallContext, row: Row, found: dict[str, list[Row]]) -> list[str]:
    today = today_of(ctx)
    lines = [f"{one['label']}: {date_words(one)} ({_until(one, today)})" for one in found["dates"]]
    lines += [f"{one['kind']}: {one['value']}" for one in found["contacts"]]
    for one in found["interactions"]:
        day = one["happened_at"].astimezone(ctx.zone).date()
        about = f": {one['summary']}" if one["summary"] else ""
        lines.append(f"last contact: {ago_words(day, today)} ({one['kind']}){about}")
    if found["groups"]:
        lines.append(f"groups: {', '.join(one['name'] for one in found['groups'])}")
    lines += [
        f"{'owes you' if one['direction'] == 'lent' else 'you owe'}: {one['shown']}"
        for one in found["loans"]
    ]
    lines += [f"gift {one['status']}: {one['what']}" for one in found["gifts"]]
    lines += [f"– {one['text']}" for one in found["notes"]]
    return lines


def _until(row: Row, today: Any) -> str:
    day = next_date(row["month"], row["day"], today)
    days = (day - today).days
    turns = f", turns {day.year - row['year']}" if row["year"] else ""
    return ("today" if days == 0 else "tomorrow" if days == 1 else f"in {days} days") + turns


TOOLS = (person_show,)
