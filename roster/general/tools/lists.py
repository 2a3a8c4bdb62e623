"""Tools for lists and to-dos: items with due dates and repeats."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    PeriodText,
    RepeatText,
    When,
    anchored,
    next_date,
    next_instant,
    read_day,
    read_period,
    read_repeat,
    read_when,
    shown_source,
    tool,
    uuid7,
)

from .shapes import After, Limit, folded, page, words_query

TODO = "to-do"
Title = Annotated[str, Field(min_length=1, max_length=300)]
ListName = Annotated[
    str, Field(min_length=1, max_length=80, description='e.g. "shopping", "to-do"')
]
ItemWords = Annotated[
    str, Field(min_length=1, max_length=300, description="id of the item, or words of its title")
]
COLUMNS = "id, list, title, due_on, due_at, repeat_rule, done_at, sender, trust"
ALIASES = {
    "todo": TODO, "todos": TODO, "to do": TODO, "to-dos": TODO, "tasks": TODO, "task": TODO,
    "aufgaben": TODO, "einkauf": "shopping", "einkäufe": "shopping", "einkaufen": "shopping",
    "einkaufsliste": "shopping", "groceries": "shopping", "grocery": "shopping",
}  # fmt: skip


def list_name(name: str) -> str:
    """Return the name of a list without the words around it: "my shopping list" is "shopping"."""
    plain = folded(name)
    for lead in ("my ", "the ", "meine ", "meiner ", "die ", "der "):
        plain = plain.removeprefix(lead)
    for tail in (" list", "-list", " liste", "-liste"):
        plain = plain.removesuffix(tail)
    return ALIASES.get(plain, plain) or TODO


@tool(callers=SESSIONS)
async def list_add(
    ctx: CallContext,
    items: Annotated[list[Title], Field(min_length=1, max_length=50)],
    list: ListName = TODO,  # noqa: A002
    due: When | None = None,
    repeat: RepeatText | None = None,
) -> dict[str, Any]:
    """Add items to a list, which is made if missing. An open item of the same title is not added twice.

    due without a time of day means that day. A done item that repeats comes back at its next date.
    """
    name, rule = list_name(list), read_repeat(repeat) if repeat else None
    due_on, due_at = _due(ctx, due)
    if rule and not due_on and not due_at:
        due_on = _first_date(rule, ctx.now.astimezone(ctx.zone).date())
    rule = _anchored(rule, due_on, due_at, ctx)
    added = []
    titles = _titles(items, name)
    for title in titles:
        row = await ctx.connection.fetchrow(
            f"""
            INSERT INTO list_items (id, list, title, due_on, due_at, repeat_rule)
            SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (
                SELECT FROM list_items WHERE list = $2 AND lower(title) = lower($3) AND done_at IS NULL)
            RETURNING {COLUMNS}
            """,
            uuid7(), name, title, due_on, due_at, rule,
        )  # fmt: skip
        if row is not None:
            added.append(_shown(ctx, row))
    already = [title for title in titles if title not in {one["title"] for one in added}]
    return {"list": name, "added": added, "text": _added_text(name, added, already)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def list_show(
    ctx: CallContext,
    list: ListName | None = None,  # noqa: A002
    due: PeriodText | None = None,
    done: bool = False,
    limit: Limit = 50,
    after: After | None = None,
) -> dict[str, Any]:
    """Show the open items of a list (done=true: the done ones), or of all lists, in order of due date.

    due limits it to items due in that period; overdue ones are included.
    """
    end = read_period(ctx, due).last_day if due else None
    rows = await ctx.connection.fetch(
        f"""
        WITH dated AS (
            SELECT {COLUMNS}, coalesce(due_on, (due_at AT TIME ZONE $4)::date) AS day FROM list_items
            WHERE ($1::text IS NULL OR list = $1) AND done_at IS {"NOT NULL" if done else "NULL"}
        )
        SELECT * FROM dated
        WHERE ($2::date IS NULL OR day <= $2)
          AND ($3::uuid IS NULL OR (coalesce(day, 'infinity'), id)
               > (SELECT coalesce(day, 'infinity'), id FROM dated WHERE id = $3))
        ORDER BY coalesce(day, 'infinity'), id LIMIT $5
        """,
        list_name(list) if list else None, end, after, str(ctx.zone), limit,
    )  # fmt: skip
    return page("items", [_shown(ctx, row) for row in rows], limit)


@tool(callers=SESSIONS, effect=Effect.READ)
async def list_names(ctx: CallContext) -> dict[str, Any]:
    """List the lists with their numbers of open and done items."""
    rows = await ctx.connection.fetch(
        """
        SELECT list, count(*) FILTER (WHERE done_at IS NULL) AS open,
               count(*) FILTER (WHERE done_at IS NOT NULL) AS done
        FROM list_items GROUP BY list ORDER BY list
        """
    )
    return {"lists": [dict(row) for row in rows]}


@tool(callers=SESSIONS)
async def list_check(
    ctx: CallContext,
    item: ItemWords,
    list: ListName | None = None,  # noqa: A002
) -> dict[str, Any]:
    """Mark an open item as done. A repeating one is added again for its next date."""
    row = await _find(ctx, item, list)
    done = await ctx.connection.fetchrow(
        f"UPDATE list_items SET done_at = $2 WHERE id = $1 RETURNING {COLUMNS}", row["id"], ctx.now
    )
    following = await _repeat(ctx, row) if row["repeat_rule"] else None
    again = f" Next: {following['due']}." if following else ""
    return {**_shown(ctx, done), "text": f"Done: {row['title']}.{again}"}


@tool(callers=SESSIONS)
async def list_update(
    ctx: CallContext,
    item: ItemWords,
    list: ListName | None = None,  # noqa: A002
    title: Title | None = None,
    due: When | None = None,
    repeat: RepeatText | None = None,
    move_to: ListName | None = None,
) -> dict[str, Any]:
    """Change an open item: its title, due date ("none" removes it), repeat, or list (move_to)."""
    row = await _find(ctx, item, list)
    due_on, due_at = (row["due_on"], row["due_at"]) if due is None else _due(ctx, due)
    rule = read_repeat(repeat) if repeat else row["repeat_rule"]
    changed = await ctx.connection.fetchrow(
        f"""
        UPDATE list_items SET title = coalesce($2, title), list = coalesce($3, list),
               due_on = $4, due_at = $5, repeat_rule = $6
        WHERE id = $1 RETURNING {COLUMNS}
        """,
        row["id"], title, list_name(move_to) if move_to else None, due_on, due_at,
        _anchored(rule, due_on, due_at, ctx) if due_on or due_at else None,
    )  # fmt: skip
    return _shown(ctx, changed)


@tool(callers=SESSIONS)
async def list_remove(
    ctx: CallContext,
    item: ItemWords,
    list: ListName | None = None,  # noqa: A002
) -> dict[str, Any]:
    """Remove an item from a list without marking it as done. undo brings it back."""
    row = await _find(ctx, item, list)
    await ctx.connection.execute("DELETE FROM list_items WHERE id = $1", row["id"])
    return _shown(ctx, row)


@tool(callers=SESSIONS)
async def list_clear(ctx: CallContext, list: ListName, done_only: bool = True) -> dict[str, Any]:  # noqa: A002
    """Remove the done items of a list, or with done_only=false all items. undo brings them back."""
    rows = await ctx.connection.fetch(
        "DELETE FROM list_items WHERE list = $1 AND (NOT $2 OR done_at IS NOT NULL) RETURNING id",
        list_name(list),
        done_only,
    )
    return {"list": list_name(list), "removed": len(rows)}


async def due_items(ctx: CallContext, last_day: date) -> list[dict[str, Any]]:
    """Return the open items due until a day, overdue ones included, oldest first."""
    rows = await ctx.connection.fetch(
        f"""
        SELECT {COLUMNS} FROM list_items
        WHERE done_at IS NULL AND coalesce(due_on, (due_at AT TIME ZONE $2)::date) <= $1
        ORDER BY coalesce(due_on, (due_at AT TIME ZONE $2)::date), id LIMIT 20
        """,
        last_day,
        str(ctx.zone),
    )
    return [_shown(ctx, row) for row in rows]


async def _find(ctx: CallContext, item: str, name: str | None) -> Any:
    """Return the open item with this id or title; raise if the words fit none or several."""
    chosen = list_name(name) if name else None
    rows = await ctx.connection.fetch(
        f"""
        SELECT {COLUMNS} FROM list_items
        WHERE done_at IS NULL AND ($2::text IS NULL OR list = $2)
          AND (id::text = $1 OR to_tsvector('simple', title) @@ to_tsquery('simple', $3))
        ORDER BY id LIMIT 20 FOR UPDATE
        """,
        item,
        chosen,
        words_query(item) or "-",
    )
    exact = [row for row in rows if folded(item) in (str(row["id"]), folded(row["title"]))]
    found = exact or rows
    where = f" on the list {chosen}" if chosen else ""
    if not found:
        raise NotFound(f"there is no open item {item!r}{where}", hint="list_show shows the items")
    if len(found) > 1:
        titles = "; ".join(f"{row['title']} ({row['list']})" for row in found[:5])
        raise InvalidArguments(f"{item!r} fits several items: {titles}", hint="say it more exactly")
    return found[0]


async def _repeat(ctx: CallContext, row: Any) -> dict[str, Any] | None:
    """Add a done item again for the next date of its rule that is not in the past."""
    due_on, due_at = row["due_on"], row["due_at"]
    today = ctx.now.astimezone(ctx.zone).date()
    while due_on and (due_on := next_date(row["repeat_rule"], due_on)) and due_on < today:
        pass
    while (
        due_at
        and (due_at := next_instant(row["repeat_rule"], due_at, ctx.zone))
        and due_at < ctx.now
    ):
        pass
    if not due_on and not due_at:
        return None
    added = await ctx.connection.fetchrow(
        f"""
        INSERT INTO list_items (id, list, title, due_on, due_at, repeat_rule)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING {COLUMNS}
        """,
        uuid7(), row["list"], row["title"], due_on, due_at, row["repeat_rule"],
    )  # fmt: skip
    return _shown(ctx, added)


def _due(ctx: CallContext, words: str | None) -> tuple[date | None, datetime | None]:
    """Return the due day, or the due time if the words name one."""
    if words is None or words.casefold().strip() in ("none", "never"):
        return None, None
    try:
        return read_day(ctx, words), None
    except InvalidArguments:
        return None, read_when(ctx, words, prefer="future")


def _anchored(
    rule: str | None, due_on: date | None, due_at: datetime | None, ctx: CallContext
) -> str | None:
    first = due_on or (due_at and due_at.astimezone(ctx.zone).date())
    return anchored(rule, first) if rule and first else None


def _first_date(rule: str, today: date) -> date:
    """Return today, or for a rule that names days the first of them."""
    return (next_date(rule, today - timedelta(days=1)) or today) if "BY" in rule else today


def _titles(items: list[str], name: str) -> list[str]:
    """Return the titles; "milk, eggs and bread" on a list of things is three of them."""
    titles = list(items)
    if len(items) == 1 and "," in items[0] and name != TODO:
        *first, last = items[0].split(",")
        for word in (" and ", " und "):
            last = last.replace(word, ",")
        titles = [*first, *f" {last}".removeprefix(" and ").removeprefix(" und ").split(",")]
    return list(dict.fromkeys(title.strip() for title in titles if title.strip()))


def _added_text(name: str, added: list[dict[str, Any]], already: list[str]) -> str:
    due = f", due {added[0]['due']}" if added and added[0]["due"] else ""
    new = f"Added to {name}: {', '.join(one['title'] for one in added)}{due}." if added else ""
    old = f"Already on {name}: {', '.join(already)}." if already else ""
    return f"{new} {old}".strip()


def _shown(ctx: CallContext, row: Any) -> dict[str, Any]:
    today = ctx.now.astimezone(ctx.zone).date()
    return {
        "id": str(row["id"]),
        "list": row["list"],
        "title": row["title"],
        "due": _due_text(ctx, row, today),
        "repeat": row["repeat_rule"],
        "done": row["done_at"] is not None,
        **shown_source(ctx, row),
    }


def _due_text(ctx: CallContext, row: Any, today: date) -> str | None:
    local = row["due_at"].astimezone(ctx.zone) if row["due_at"] else None
    day = row["due_on"] or (local and local.date())
    if day is None:
        return None
    near = {0: "today", 1: "tomorrow", -1: "yesterday"}.get((day - today).days)
    text = near or f"{day:%a %-d %B}" + (f" {day.year}" if day.year != today.year else "")
    return f"{text} at {local:%H:%M}" if local else text


TOOLS = (list_add, list_show, list_names, list_check, list_update, list_remove, list_clear)
