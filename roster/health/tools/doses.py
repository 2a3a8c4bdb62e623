"""Tools for doses: log one, see what is due, and how regularly a medication was taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

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
from .medications import (
    Medication,
    Name,
    active_medications,
    add_medication,
    find_medication,
    require_medication,
    today,
)
from .units import plain

ALL = (
    "all",
    "meds",
    "pills",
    "medication",
    "medications",
    "medicine",
    "tablets",
    "tabletten",
    "medikamente",
)
MAX_OFFSET = timedelta(hours=6)  # a dose belongs to a due time at most this far away
EARLY = timedelta(hours=1)
# Names that need no introduction: their first dose adds them, taken as needed.
_WELL_KNOWN = frozenset(
    word
    for line in (
        "acetaminophen advil aleve antibiotic antibiotics antibiotikum antihistamine aspirin cetirizine",
        "creatine diclofenac eisen ibuprofen imodium insulin iron loperamide loratadine magnesium melatonin",
        "metamizol multivitamin naproxen novalgin omega-3 omeprazol omeprazole pantoprazol pantoprazole",
        "paracetamol probiotic tylenol vitamin vitamine vitamins zinc zink",
    )
    for word in line.split()
)


@dataclass(frozen=True, slots=True)
class DueDose:
    """One due time of a medication and the dose that was logged for it, if any."""

    medication: Medication
    due_at: datetime
    status: str | None

    def state(self, now: datetime) -> str:
        if self.status:
            return self.status
        return "open" if self.due_at <= now else "later"


@tool(callers=SESSIONS)
async def dose_log(
    ctx: CallContext,
    medication: Name,
    taken_at: When | None = None,
    quantity: Annotated[Number, Field(gt=0, le=1000)] | None = None,
    dose: Annotated[str, Field(max_length=60)] | None = None,
    skipped: bool = False,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Log a dose as taken (or skipped). medication "all": every dose that is due and still open.

    dose such as "400 mg" adds a medication that is not known yet.
    """
    when = read_past(ctx, taken_at)
    if medication.strip().casefold() in ALL:
        chosen = await _open_doses(ctx, when)
        if not chosen:
            raise NotFound("no dose is open now", hint="name the medication: “took my ibuprofen”")
    else:
        found = await _medication_of(ctx, medication, dose)
        chosen = [(found, await _slot_of(ctx, found, when))]
    status = "skipped" if skipped else "taken"
    rows = [
        await _insert(ctx, one, status, when, due_at, quantity, notes) for one, due_at in chosen
    ]
    return {
        "doses": [_shown(ctx, row) for row in rows],
        "text": f"Logged: {', '.join(_taken(one, quantity) for one, _ in chosen)} {status}.",
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def doses_due(ctx: CallContext, day: Day = "today") -> dict[str, Any]:
    """List the doses of a day: taken, skipped, open (due, not logged) or later; and supplies that run out."""
    chosen = read_day(ctx, day)
    found = await active_medications(ctx.connection)
    due = await due_doses(ctx.connection, found, chosen, chosen, ctx.zone)
    refills = [one for one in found if one.needs_refill()]
    for one in found:
        shown_source(ctx, one.row)
    lines = [f"{dose.due_at:%H:%M} {dose.medication.title}: {dose.state(ctx.now)}" for dose in due]
    lines += [f"Refill {one.title}: {plain(one.remaining or Decimal(0))} left" for one in refills]
    return {
        "doses": [
            {
                "medication": dose.medication.title,
                "due_at": dose.due_at.isoformat(),
                "state": dose.state(ctx.now),
            }
            for dose in due
        ],
        "refills": [one.title for one in refills],
        "text": "\n".join(lines) or "No dose is scheduled for that day.",
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def medication_adherence(
    ctx: CallContext, period: PeriodText = "last 30 days", medication: Name | None = None
) -> dict[str, Any]:
    """Compute how many scheduled doses of a period were taken, skipped and missed, per medication."""
    span = read_period(ctx, period)
    found = (
        [await require_medication(ctx, medication)]
        if medication
        else await active_medications(ctx.connection)
    )
    last = min(span.last_day, today(ctx))
    due = await due_doses(ctx.connection, found, span.first_day, last, ctx.zone)
    past = [dose for dose in due if dose.due_at <= ctx.now]
    counted = [_adherence(one, past) for one in found if one.schedule.times]
    for one in found:
        shown_source(ctx, one.row)
    lines = [
        f"{one['medication']}: {one['taken']} of {one['due']} doses ({one['percent']} %)"
        for one in counted
        if one["due"]
    ]
    return {
        "period": period,
        "medications": counted,
        "text": "\n".join(lines) or f"No scheduled doses in {period}.",
    }


async def due_doses(
    connection: Any, found: Iterable[Medication], first: date, last: date, zone: ZoneInfo
) -> list[DueDose]:
    """Return the due times of the medications in a range of days, with what was logged for them."""
    slots = [(one, at) for one in found for at in one.schedule.slots(first, last, zone)]
    logged = await _logged(connection, [at for _, at in slots])
    due = [DueDose(one, at, logged.get((one.id, at.astimezone(UTC)))) for one, at in slots]
    return sorted(due, key=lambda dose: (dose.due_at, dose.medication.name))


async def _logged(
    connection: Any, instants: Sequence[datetime]
) -> dict[tuple[UUID, datetime], str]:
    if not instants:
        return {}
    rows = await connection.fetch(
        "SELECT medication_id, due_at, status FROM doses WHERE due_at BETWEEN $1 AND $2",
        min(instants),
        max(instants),
    )
    return {(row["medication_id"], row["due_at"]): row["status"] for row in rows}


def _adherence(medication: Medication, past: Sequence[DueDose]) -> dict[str, Any]:
    own = [dose.status for dose in past if dose.medication.id == medication.id]
    taken, skipped = own.count("taken"), own.count("skipped")
    return {
        "medication": medication.title,
        "due": len(own),
        "taken": taken,
        "skipped": skipped,
        "missed": len(own) - taken - skipped,
        "percent": round(100 * taken / len(own)) if own else None,
    }


async def _open_doses(ctx: CallContext, when: datetime) -> list[tuple[Medication, datetime | None]]:
    day = when.astimezone(ctx.zone).date()
    found = await active_medications(ctx.connection)
    due = await due_doses(ctx.connection, found, day, day, ctx.zone)
    return [
        (dose.medication, dose.due_at)
        for dose in due
        if dose.status is None and dose.due_at <= when + EARLY
    ]


async def _medication_of(ctx: CallContext, name: str, dose: str | None) -> Medication:
    """Return the medication; add one that is well known, or whose strength is given."""
    found = await find_medication(ctx, name)
    if found is not None:
        return found
    if dose is None and name.strip().casefold().split()[0] not in _WELL_KNOWN:
        return await require_medication(ctx, name)
    return await add_medication(ctx, name, {"dose": dose} if dose else {})


async def _slot_of(ctx: CallContext, medication: Medication, when: datetime) -> datetime | None:
    """Return the nearest due time without a dose; None for a dose out of turn."""
    day = when.astimezone(ctx.zone).date()
    nearby = day - timedelta(days=1), day + timedelta(days=1)
    due = await due_doses(ctx.connection, [medication], *nearby, ctx.zone)
    free = [dose.due_at for dose in due if dose.status is None]
    taken = when.astimezone(UTC)  # in one zone Python subtracts local times
    near = {abs(at.astimezone(UTC) - taken): at for at in free}
    return near[min(near)] if near and min(near) <= MAX_OFFSET else None


async def _insert(
    ctx: CallContext,
    medication: Medication,
    status: str,
    when: datetime,
    due_at: datetime | None,
    quantity: Decimal | None,
    notes: str | None,
) -> Any:
    if not medication.active:
        raise InvalidArguments(
            f"{medication.name} was stopped", hint="start it again: medication_set with active=true"
        )
    return await ctx.connection.fetchrow(
        """
        INSERT INTO doses (id, medication_id, medication, status, quantity, taken_at, due_at, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *
        """,
        uuid7(),
        medication.id,
        medication.title,
        status,
        quantity or medication.quantity,
        when,
        due_at,
        notes,
    )


def _taken(medication: Medication, quantity: Decimal | None) -> str:
    return medication.title if quantity is None else f"{plain(quantity)} × {medication.title}"


def _shown(ctx: CallContext, row: Any) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "medication": row["medication"],
        "status": row["status"],
        "quantity": str(plain(row["quantity"])),
        "taken_at": row["taken_at"].isoformat(),
        "due_at": row["due_at"].isoformat() if row["due_at"] else None,
        **shown_source(ctx, row),
    }


TOOLS = (dose_log, doses_due, medication_adherence)
