"""Tools for conditions, symptoms and meals."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    PeriodText,
    When,
    read_day,
    read_period,
    shown_source,
    tool,
    uuid7,
)

from .measurements import Notes, Number, read_past
from .units import plain, rounded

Status = Literal["active", "managed", "resolved"]
Meal = Literal["breakfast", "lunch", "dinner", "snack"]
Grams = Annotated[Number, Field(ge=0, le=2000)]
Short = Annotated[str, Field(min_length=1, max_length=100)]
MAX_KCAL = 6000  # of one meal; more is asked back
NUTRIENTS = ("kcal", "protein_g", "carbs_g", "fat_g")


@tool(callers=SESSIONS)
async def condition_set(
    ctx: CallContext,
    name: Short,
    status: Status | None = None,
    since: Day | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a condition that the person names, or change the given fields of one. Never deduce one yourself."""
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO conditions (id, name, status, since, notes)
        VALUES ($1, $2, coalesce($3, 'active'), $4, $5)
        ON CONFLICT (lower(name)) DO UPDATE SET status = coalesce($3, conditions.status),
            since = coalesce($4, conditions.since), notes = coalesce($5, conditions.notes)
        RETURNING *
        """,
        uuid7(),
        name.strip(),
        status,
        read_day(ctx, since, prefer="past") if since else None,
        notes,
    )
    return {**_shown_condition(ctx, row), "text": f"Noted: {row['name']} ({row['status']})."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def condition_list(ctx: CallContext, status: Status | None = None) -> dict[str, Any]:
    """List conditions, optionally of one status."""
    rows = await ctx.connection.fetch(
        "SELECT * FROM conditions WHERE $1::text IS NULL OR status = $1 ORDER BY status, name LIMIT 200",
        status,
    )
    lines = [f"{row['name']} ({row['status']})" for row in rows]
    return {"conditions": [_shown_condition(ctx, row) for row in rows], "text": "\n".join(lines)}


@tool(callers=SESSIONS)
async def symptom_log(
    ctx: CallContext,
    name: Short,
    severity: Annotated[int, Field(ge=1, le=10, description="1 (slight) to 10 (worst)")]
    | None = None,
    condition: Short | None = None,
    occurred_at: When | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Store a symptom, e.g. name "headache", severity 6, optionally of a known condition."""
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO symptoms (id, name, severity, condition_id, occurred_at, notes)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING *
        """,
        uuid7(),
        name.strip().casefold(),
        severity,
        await _condition_id(ctx, condition) if condition else None,
        read_past(ctx, occurred_at),
        notes,
    )
    degree = "" if severity is None else f" {severity}/10"
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "severity": row["severity"],
        "occurred_at": row["occurred_at"].isoformat(),
        "text": f"Logged: {row['name']}{degree}.",
        **shown_source(ctx, row),
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def symptom_statistics(
    ctx: CallContext, period: PeriodText = "last 30 days", name: Short | None = None
) -> dict[str, Any]:
    """Count symptoms of a period: days, entries, average and worst severity, the last time."""
    span = read_period(ctx, period)
    rows = await ctx.connection.fetch(
        """
        SELECT name, count(*) AS entries, avg(severity) AS average, max(severity) AS worst,
            count(DISTINCT (occurred_at AT TIME ZONE $3)::date) AS days, max(occurred_at) AS last_at,
            bool_and(trust = 'owner') AS all_trusted
        FROM symptoms WHERE occurred_at >= $1 AND occurred_at < $2 AND ($4::text IS NULL OR name = $4)
        GROUP BY name ORDER BY count(*) DESC, name LIMIT 50
        """,
        span.start,
        span.end,
        str(ctx.zone),
        name.strip().casefold() if name else None,
    )
    if not all(row["all_trusted"] for row in rows):
        ctx.outside.add("symptoms of other people's messages")
    lines = [_symptom_line(row) for row in rows]
    nothing = f"No {name or 'symptoms'} in {period}."
    return {
        "period": period,
        "symptoms": [
            {
                "name": row["name"],
                "entries": row["entries"],
                "days": row["days"],
                "average_severity": None
                if row["average"] is None
                else str(rounded(row["average"], 1)),
                "worst": row["worst"],
                "last_at": row["last_at"].isoformat(),
            }
            for row in rows
        ],
        "text": "\n".join(lines) or nothing,
    }


@tool(callers=SESSIONS)
async def meal_log(
    ctx: CallContext,
    description: Annotated[str, Field(min_length=1, max_length=500)],
    meal: Meal | None = None,
    kcal: Annotated[Number, Field(ge=0)] | None = None,
    protein_g: Grams | None = None,
    carbs_g: Grams | None = None,
    fat_g: Grams | None = None,
    eaten_at: When | None = None,
    notes: Notes | None = None,
    confirmed: bool = False,
) -> dict[str, Any]:
    """Store a meal, with calories and nutrients if the person gives them. Default meal: by time of day."""
    if kcal is not None and kcal > MAX_KCAL and not confirmed:
        raise InvalidArguments(
            f"{kcal} kcal is unlikely for one meal; nothing was stored",
            hint="if it is right, call again with confirmed=true",
        )
    when = read_past(ctx, eaten_at)
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO meals (id, meal, description, kcal, protein_g, carbs_g, fat_g, eaten_at, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *
        """,
        uuid7(),
        meal or _meal_at(when.astimezone(ctx.zone).hour),
        description.strip(),
        kcal,
        protein_g,
        carbs_g,
        fat_g,
        when,
        notes,
    )
    energy = "" if kcal is None else f" ({plain(kcal)} kcal)"
    return {
        "id": str(row["id"]),
        "meal": row["meal"],
        "eaten_at": row["eaten_at"].isoformat(),
        "text": f"Logged {row['meal']}: {row['description']}{energy}.",
        **shown_source(ctx, row),
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def nutrition_statistics(
    ctx: CallContext, period: PeriodText = "last 7 days"
) -> dict[str, Any]:
    """Add up calories and nutrients of a period's meals, in total and per day with entries."""
    span = read_period(ctx, period)
    row = await ctx.connection.fetchrow(
        """
        SELECT count(*) AS meals, count(DISTINCT (eaten_at AT TIME ZONE $3)::date) AS days,
            sum(kcal) AS kcal, sum(protein_g) AS protein_g, sum(carbs_g) AS carbs_g, sum(fat_g) AS fat_g,
            count(kcal) AS counted, coalesce(bool_and(trust = 'owner'), true) AS all_trusted
        FROM meals WHERE eaten_at >= $1 AND eaten_at < $2
        """,
        span.start,
        span.end,
        str(ctx.zone),
    )
    assert row is not None
    if not row["all_trusted"]:
        ctx.outside.add("meals of other people's messages")
    totals = {name: str(plain(row[name])) for name in NUTRIENTS if row[name] is not None}
    daily = {
        name: str(rounded(row[name] / row["days"], 0))
        for name in NUTRIENTS
        if row[name] is not None
    }
    return {
        "period": period,
        "meals": row["meals"],
        "days": row["days"],
        "without_calories": row["meals"] - row["counted"],
        "total": totals,
        "per_day": daily,
        "text": _nutrition_text(period, row, daily),
    }


def _nutrition_text(period: str, row: Any, daily: dict[str, str]) -> str:
    if not row["meals"]:
        return f"No meals in {period}."
    named = {"kcal": "kcal", "protein_g": "g protein", "carbs_g": "g carbs", "fat_g": "g fat"}
    per_day = ", ".join(f"{value} {named[name]}" for name, value in daily.items())
    unknown = row["meals"] - row["counted"]
    missing = f" {unknown} meals have no calories." if unknown else ""
    figures = f", per day {per_day}" if per_day else ""
    return f"{row['meals']} meals on {row['days']} days{figures}.{missing}"


def _symptom_line(row: Any) -> str:
    degree = "" if row["average"] is None else f", severity {rounded(row['average'], 1)} on average"
    days = f"{row['days']} {'day' if row['days'] == 1 else 'days'}"
    return f"{row['name']}: {days}, {row['entries']} entries{degree}"


async def _condition_id(ctx: CallContext, name: str) -> Any:
    found = await ctx.connection.fetchval(
        "SELECT id FROM conditions WHERE lower(name) = lower($1)", name.strip()
    )
    if found is None:
        raise NotFound(f"there is no condition {name!r}", hint="add it with condition_set first")
    return found


def _meal_at(hour: int) -> Meal:
    if 4 <= hour < 11:
        return "breakfast"
    if 11 <= hour < 15:
        return "lunch"
    return "dinner" if 17 <= hour < 23 else "snack"


def _shown_condition(ctx: CallContext, row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "status": row["status"],
        "since": row["since"].isoformat() if row["since"] else None,
        "notes": row["notes"],
        **shown_source(ctx, row),
    }


TOOLS = (
    condition_set,
    condition_list,
    symptom_log,
    symptom_statistics,
    meal_log,
    nutrition_statistics,
)
