"""Tools for body measurements: one typed row each, in the person's unit and in the standard unit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, WithJsonSchema

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    PeriodText,
    When,
    read_period,
    read_when,
    shown_source,
    tool,
    uuid7,
)

from .units import (
    TYPES,
    MeasureType,
    find_type,
    is_plausible,
    plain,
    type_name,
    unit_of,
    usual_range,
)

Number = Annotated[Decimal, WithJsonSchema({"type": ["number", "string"]})]
Type = Annotated[str, Field(min_length=1, max_length=64)]
KnownType = Annotated[Type, Field(description=f"Known: {', '.join(kind.name for kind in TYPES)}.")]
Unit = Annotated[str, Field(max_length=16)]
Notes = Annotated[str, Field(max_length=2000)]
Limit = Annotated[int, Field(ge=1, le=200)]

MAX_AHEAD = timedelta(hours=1)
_COLUMNS = "id, type, value, second, unit, notes, measured_at, started_at, reading, sender, trust"


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A checked measurement, ready to be stored."""

    type: str
    value: Decimal
    second: Decimal | None
    unit: str | None
    standard_value: Decimal
    standard_second: Decimal | None
    standard_unit: str | None


@tool(callers=SESSIONS)
async def measurement_log(
    ctx: CallContext,
    type: KnownType,  # noqa: A002  (named after the column)
    value: Number,
    unit: Unit | None = None,
    second: Number | None = None,
    measured_at: When | None = None,
    notes: Notes | None = None,
    confirmed: bool = False,
) -> dict[str, Any]:
    """Store one measurement: type "weight", value 80.4, unit "kg"; blood_pressure: value 120, second 80.

    Without a unit, the unit of the last entry counts. confirmed=true stores a value that was asked back.
    """
    reading = await checked(ctx, type, value, unit, second, confirmed=confirmed)
    when = read_past(ctx, measured_at)
    row = await _insert(ctx, reading, when, notes)
    shown = _shown(ctx, row)
    return {**shown, "text": f"Logged: {row['reading']}{_at(ctx, when)}."}


@tool(callers=SESSIONS)
async def sleep_log(
    ctx: CallContext,
    hours: Number | None = None,
    asleep_at: When | None = None,
    woke_at: When | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Store one night: hours of sleep, or the times of falling asleep and waking (hours are computed)."""
    woke = read_past(ctx, woke_at)
    asleep = read_when(ctx, asleep_at) if asleep_at else None
    if asleep is not None:
        # Elapsed time, so that a night with a clock change has the right length.
        elapsed = woke.astimezone(UTC) - asleep.astimezone(UTC)
        hours = plain(round(Decimal(elapsed / timedelta(hours=1)), 2))
    if hours is None:
        raise InvalidArguments("the length is missing", hint="give hours, or asleep_at and woke_at")
    reading = await checked(ctx, "sleep", hours, "h")
    row = await _insert(ctx, reading, woke, notes, asleep)
    return {**_shown(ctx, row), "text": f"Logged: {row['reading']}{_at(ctx, woke)}."}


@tool(callers=SESSIONS)
async def measurement_correct(
    ctx: CallContext,
    type: Type,  # noqa: A002
    value: Number,
    unit: Unit | None = None,
    second: Number | None = None,
    confirmed: bool = False,
) -> dict[str, Any]:
    """Correct the newest measurement of a type ("no, 81"). Older entries: health_change."""
    name = type_name(type)
    old = await _newest(ctx, name)
    if old is None:
        raise NotFound(f"there is no {name.replace('_', ' ')} to correct", hint="measurement_log")
    reading = await checked(ctx, name, value, unit or old["unit"], second, confirmed=confirmed)
    row = await replace_reading(ctx, old["id"], reading)
    return {
        **_shown(ctx, row),
        "was": old["reading"],
        "text": f"Corrected: {row['reading']} (was {_amount(old)}).",
    }


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def measurement_latest(ctx: CallContext, type: Type) -> dict[str, Any] | None:  # noqa: A002
    """Return the newest measurement of a type, or null."""
    row = await _newest(ctx, type_name(type))
    return _shown(ctx, row) if row else None


@tool(callers=SESSIONS, effect=Effect.READ)
async def measurement_history(
    ctx: CallContext,
    type: Type,  # noqa: A002
    period: PeriodText = "all",
    limit: Limit = 20,
    after: UUID | None = None,
) -> dict[str, Any]:
    """List measurements of a type, newest first. For the next page pass next as after."""
    span = read_period(ctx, period)
    rows = await ctx.connection.fetch(
        f"""
        SELECT {_COLUMNS} FROM measurements
        WHERE type = $1 AND measured_at >= $2 AND measured_at < $3
          AND ($4::uuid IS NULL
               OR (measured_at, id) < (SELECT measured_at, id FROM measurements WHERE id = $4))
        ORDER BY measured_at DESC, id DESC LIMIT $5
        """,
        type_name(type),
        span.start,
        span.end,
        after,
        limit + 1,
    )
    shown = [_shown(ctx, row) for row in rows[:limit]]
    more = {"next": shown[-1]["id"]} if len(rows) > limit else {}
    return {"measurements": shown, **more, "text": "\n".join(map(_line, shown))}


def read_past(ctx: CallContext, words: str | None) -> datetime:
    """Return the time of something that has happened; by default now.

    Raises InvalidArguments for a time in the future.
    """
    when = read_when(ctx, words) if words else ctx.now
    if when > ctx.now + MAX_AHEAD:
        raise InvalidArguments(
            f"{when.astimezone(ctx.zone):%-d %B %Y, %H:%M} is in the future",
            hint="give the time at which it happened",
        )
    return when


async def checked(
    ctx: CallContext,
    type: str,  # noqa: A002
    value: Decimal,
    unit: str | None,
    second: Decimal | None = None,
    *,
    confirmed: bool = False,
) -> MeasuredValue:
    """Return the measurement in its own and in the standard unit; refuse what makes no sense."""
    name = type_name(type)
    for number in (value, second):
        if number is not None and not number.is_finite():
            raise InvalidArguments(f"{number} is not a number", hint="write a number such as 80.4")
    kind = find_type(name)
    if kind is None:
        return MeasuredValue(name, value, second, unit, value, second, unit)
    used = unit_of(kind, unit) if unit else await _usual_unit(ctx, kind)
    _check_pair(kind, value, second)
    standard = [kind.standard(one, used) for one in (value, second) if one is not None]
    if not confirmed and not all(is_plausible(kind, one) for one in standard):
        _ask_back(kind, value, second, used)
    return MeasuredValue(
        name,
        value,
        second,
        used,
        standard[0],
        standard[1] if second is not None else None,
        kind.unit,
    )


async def replace_reading(ctx: CallContext, record_id: UUID, new: MeasuredValue) -> Any:
    return await ctx.connection.fetchrow(
        f"""
        UPDATE measurements SET type = $2, value = $3, second = $4, unit = $5, standard_value = $6,
            standard_second = $7, standard_unit = $8
        WHERE id = $1 RETURNING {_COLUMNS}
        """,
        record_id,
        new.type,
        new.value,
        new.second,
        new.unit,
        new.standard_value,
        new.standard_second,
        new.standard_unit,
    )


async def _insert(
    ctx: CallContext,
    new: MeasuredValue,
    when: datetime,
    notes: str | None,
    started_at: datetime | None = None,
) -> Any:
    return await ctx.connection.fetchrow(
        f"""
        INSERT INTO measurements (id, type, value, second, unit, standard_value, standard_second,
                                  standard_unit, measured_at, started_at, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING {_COLUMNS}
        """,
        uuid7(),
        new.type,
        new.value,
        new.second,
        new.unit,
        new.standard_value,
        new.standard_second,
        new.standard_unit,
        when,
        started_at,
        notes,
    )


async def _newest(ctx: CallContext, name: str) -> Any:
    return await ctx.connection.fetchrow(
        f"SELECT {_COLUMNS} FROM measurements WHERE type = $1 ORDER BY measured_at DESC, id DESC LIMIT 1",
        name,
    )


async def _usual_unit(ctx: CallContext, kind: MeasureType) -> str:
    """Return the unit of the newest entry, or the standard unit."""
    last = await _newest(ctx, kind.name)
    return last["unit"] if last and last["unit"] in kind.scales else kind.unit


def _check_pair(kind: MeasureType, value: Decimal, second: Decimal | None) -> None:
    if kind.is_pair and (second is None or second >= value):
        raise InvalidArguments(
            f"{kind.title} is a pair: the upper value and a lower one",
            hint="write 120/80, that is value 120 and second 80",
        )
    if second is not None and not kind.is_pair:
        raise InvalidArguments(f"{kind.title} is one number", hint="leave out second")


def _ask_back(kind: MeasureType, value: Decimal, second: Decimal | None, unit: str) -> None:
    lower = "" if second is None else f"/{second}"
    said = f"{kind.title} {value}{lower} {unit}"
    raise InvalidArguments(
        f"{said} is unlikely (usual: {usual_range(kind, unit)}); nothing was stored",
        hint=f"if it is right, say “yes, {said}” (confirmed=true); otherwise send the right value",
    )


def _amount(row: Any) -> str:
    lower = "" if row["second"] is None else f"/{row['second']}"
    return f"{row['value']}{lower} {row['unit'] or ''}".rstrip()


def _at(ctx: CallContext, when: datetime) -> str:
    """Return the time for an answer, unless it is about now."""
    if abs(when - ctx.now) < timedelta(minutes=5):
        return ""
    return f" ({when.astimezone(ctx.zone):%-d %B, %H:%M})"


def _line(shown: dict[str, Any]) -> str:
    return f"{shown['when']}: {shown['reading']}"


def _shown(ctx: CallContext, row: Any) -> dict[str, Any]:
    """Return a row as JSON. The value stays decimal text, so that 80.40 does not become 80.4."""
    pair = {} if row["second"] is None else {"second": str(row["second"])}
    started = {} if row["started_at"] is None else {"started_at": row["started_at"].isoformat()}
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "value": str(row["value"]),
        **pair,
        "unit": row["unit"],
        "reading": row["reading"],
        "amount": _amount(row),
        "notes": row["notes"],
        **started,
        "measured_at": row["measured_at"].isoformat(),
        "when": f"{row['measured_at'].astimezone(ctx.zone):%-d %B %Y, %H:%M}",
        **shown_source(ctx, row),
    }


TOOLS = (
    measurement_log,
    sleep_log,
    measurement_correct,
    measurement_latest,
    measurement_history,
)
