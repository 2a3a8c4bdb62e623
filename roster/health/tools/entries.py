"""Tools for entries of every kind: find, change and delete them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    EntryChanges,
    EntryQuery,
    EntryRow,
    PeriodText,
    RecordKind,
    change_entry,
    delete_entry,
    find_entries,
    tool,
)

from .diary import Meal, Status
from .measurements import Limit, Notes, checked, read_past, replace_reading
from .units import plain

Kind = Literal["measurement", "dose", "symptom", "meal", "medication", "condition"]
Query = Annotated[str, Field(max_length=200)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class MeasurementChanges(EntryChanges):
    type: str | None = None
    value: Decimal | None = None
    second: Decimal | None = None
    unit: str | None = None
    measured_at: str | None = None
    notes: Notes | None = None
    confirmed: bool = False


class DoseChanges(EntryChanges):
    status: Literal["taken", "skipped"] | None = None
    quantity: Annotated[Decimal, Field(gt=0, le=1000)] | None = None
    taken_at: str | None = None
    notes: Notes | None = None


class SymptomChanges(EntryChanges):
    name: Name | None = None
    severity: Annotated[int, Field(ge=1, le=10)] | None = None
    occurred_at: str | None = None
    notes: Notes | None = None


class MealChanges(EntryChanges):
    meal: Meal | None = None
    description: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    kcal: Annotated[Decimal, Field(ge=0, le=20_000)] | None = None
    protein_g: Annotated[Decimal, Field(ge=0, le=2000)] | None = None
    carbs_g: Annotated[Decimal, Field(ge=0, le=2000)] | None = None
    fat_g: Annotated[Decimal, Field(ge=0, le=2000)] | None = None
    eaten_at: str | None = None
    notes: Notes | None = None


class MedicationChanges(EntryChanges):
    name: Name | None = None
    notes: Notes | None = None


class ConditionChanges(EntryChanges):
    name: Name | None = None
    status: Status | None = None
    notes: Notes | None = None


@tool(callers=SESSIONS, effect=Effect.READ)
async def health_find(
    ctx: CallContext,
    query: Query | None = None,
    kind: Kind | None = None,
    period: PeriodText = "all",
    limit: Limit = 20,
    after: UUID | None = None,
) -> dict[str, Any]:
    """List or search entries, newest first. For the next page of one kind pass next as after."""
    return await find_entries(ctx, KINDS, EntryQuery(query, kind, period, limit, after))


@tool(callers=SESSIONS)
async def health_change(ctx: CallContext, id: UUID, changes: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Change fields of one entry, e.g. changes {"severity": 4}; fields as in the tool that made it."""
    return await change_entry(ctx, KINDS, id, changes)


@tool(callers=SESSIONS)
async def health_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete one entry of any kind (a medication with its doses). undo brings it back."""
    return await delete_entry(ctx, KINDS, id)


async def _read_time(ctx: CallContext, row: EntryRow, given: dict[str, Any]) -> dict[str, Any]:
    """Read the time of the entry, which lies in the past."""
    for column in ("measured_at", "taken_at", "occurred_at", "eaten_at"):
        if given.get(column) is not None:
            given[column] = read_past(ctx, given[column])
    return given


async def _change_reading(ctx: CallContext, row: EntryRow, given: dict[str, Any]) -> dict[str, Any]:
    """Store value, unit and type together, because the standard value depends on all of them."""
    confirmed = given.pop("confirmed", False)
    parts = {key: given.pop(key) for key in ("type", "value", "unit", "second") if key in given}
    if parts:
        merged = {key: parts.get(key, row[key]) for key in ("type", "value", "unit", "second")}
        if "type" in parts and "unit" not in parts:
            merged["unit"] = None
        await replace_reading(ctx, row["id"], await checked(ctx, **merged, confirmed=confirmed))
    return await _read_time(ctx, row, given)


def _energy(row: EntryRow) -> str:
    return "" if row["kcal"] is None else f" ({plain(row['kcal'])} kcal)"


KINDS: dict[str, RecordKind] = {
    "measurement": RecordKind(
        "measurements",
        "measured_at",
        "reading || ' ' || coalesce(notes, '')",
        MeasurementChanges,
        lambda row: row["reading"],
        _change_reading,
    ),
    "dose": RecordKind(
        "doses",
        "taken_at",
        "medication || ' ' || coalesce(notes, '')",
        DoseChanges,
        lambda row: f"{row['medication']} {row['status']}",
        _read_time,
    ),
    "symptom": RecordKind(
        "symptoms",
        "occurred_at",
        "name || ' ' || coalesce(notes, '')",
        SymptomChanges,
        lambda row: f"{row['name']} {row['severity']}/10" if row["severity"] else row["name"],
        _read_time,
    ),
    "meal": RecordKind(
        "meals",
        "eaten_at",
        "description || ' ' || coalesce(notes, '')",
        MealChanges,
        lambda row: f"{row['meal']}: {row['description']}{_energy(row)}",
        _read_time,
    ),
    "medication": RecordKind(
        "medications",
        "created_at",
        "name || ' ' || coalesce(notes, '')",
        MedicationChanges,
        lambda row: f"{row['name']} {row['dose'] or ''}".rstrip(),
        dependents=("DELETE FROM doses WHERE medication_id = $1",),
    ),
    "condition": RecordKind(
        "conditions",
        "created_at",
        "name || ' ' || coalesce(notes, '')",
        ConditionChanges,
        lambda row: f"{row['name']} ({row['status']})",
        dependents=("UPDATE symptoms SET condition_id = NULL WHERE condition_id = $1",),
    ),
}

TOOLS = (health_find, health_change, health_delete)
