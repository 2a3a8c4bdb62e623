"""Tools for travel documents with their expiry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Day, Effect, read_day, shown_source, tool, uuid7

from .legs import Short
from .trips import Notes, today

_KINDS = {
    "passport": "passport reisepass pass",
    "id card": "id identity_card identity id_card personalausweis ausweis",
    "visa": "visum",
    "driving licence": "driving_license driver's_license drivers_license driver's_licence licence license"
    " führerschein driving_licence",
    "residence permit": "aufenthaltstitel residence_permit",
    "vaccination card": "impfpass vaccination_card",
    "health card": "krankenversicherungskarte health_insurance_card ehic",
    "rail card": "bahncard railcard interrail",
}
_KIND_OF = {
    name.replace("_", " "): kind
    for kind, names in _KINDS.items()
    for name in (kind, *names.split())
}
MAX_YEARS_AHEAD = 30
DAYS_OF_MONTH = 30.44


@tool(callers=SESSIONS)
async def document_set(
    ctx: CallContext,
    kind: Annotated[
        str, Field(min_length=1, max_length=60, description="passport, id card, visa, …")
    ],
    expires_on: Day | None = None,
    number: Short | None = None,
    country: Short | None = None,
    holder: Annotated[Short, Field(description="whose; default me")] = "me",
    issued_on: Day | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a document, or change the given fields of the one of this kind, holder and country."""
    name = _KIND_OF.get(" ".join(kind.split()).casefold(), " ".join(kind.split()).casefold())
    expiry = read_day(ctx, expires_on) if expires_on else None
    if expiry and expiry > today(ctx) + timedelta(days=366 * MAX_YEARS_AHEAD):
        raise InvalidArguments(
            f"{expiry:%-d %B %Y} is unlikely as an expiry", hint="check the year"
        )
    issued = read_day(ctx, issued_on, prefer="past") if issued_on else None
    known = await _find(ctx, name, holder, country, number)
    if known is None:
        row = await ctx.connection.fetchrow(
            """
            INSERT INTO documents (id, kind, holder, number, country, issued_on, expires_on, notes)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *
            """,
            *(uuid7(), name, holder.strip(), number, country, issued, expiry, notes),
        )
        return {**shown_document(ctx, row), "text": f"Noted: {document_line(row, today(ctx))}."}
    row = await ctx.connection.fetchrow(
        """
        UPDATE documents SET number = coalesce($2, number), country = coalesce($3, country),
            issued_on = coalesce($4, issued_on), expires_on = coalesce($5, expires_on),
            notes = coalesce($6, notes)
        WHERE id = $1 RETURNING *
        """,
        *(known["id"], number, country, issued, expiry, notes),
    )
    return {**shown_document(ctx, row), "text": f"Changed: {document_line(row, today(ctx))}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def document_list(
    ctx: CallContext,
    kind: Short | None = None,
    expiring_within_days: Annotated[int, Field(ge=0, le=3660)] | None = None,
) -> dict[str, Any]:
    """List documents, the next to expire first; optionally of a kind, or only those that expire soon."""
    name = _KIND_OF.get(" ".join(kind.split()).casefold(), kind.casefold()) if kind else None
    conditions: list[str] = ["true"]
    values: list[Any] = []
    if name is not None:
        values.append(name)
        conditions.append(f"kind = ${len(values)}")
    if expiring_within_days is not None:
        values.append(today(ctx) + timedelta(days=expiring_within_days))
        conditions.append(f"expires_on <= ${len(values)}")
    rows = await ctx.connection.fetch(
        f"SELECT * FROM documents WHERE {' AND '.join(conditions)} ORDER BY expires_on, id LIMIT 200",
        *values,
    )
    lines = [document_line(row, today(ctx)) for row in rows]
    return {"documents": [shown_document(ctx, row) for row in rows], "text": "\n".join(lines)}


async def _find(
    ctx: CallContext, kind: str, holder: str, country: str | None, number: str | None
) -> Any:
    """Return the document that is meant; a different number is another document."""
    return await ctx.connection.fetchrow(
        """
        SELECT * FROM documents WHERE kind = $1 AND lower(holder) = lower($2)
          AND ($3::text IS NULL OR country IS NULL OR lower(country) = lower($3))
          AND ($4::text IS NULL OR number IS NULL OR upper(number) = upper($4))
        ORDER BY expires_on DESC NULLS LAST LIMIT 1
        """,
        *(kind, holder.strip(), country, number),
    )


def document_title(row: Mapping[str, Any]) -> str:
    """Return the document with its holder and country."""
    whose = "" if row["holder"] == "me" else f" of {row['holder']}"
    country = f" ({row['country']})" if row["country"] else ""
    return f"{row['kind']}{whose}{country}"


def document_line(row: Mapping[str, Any], day: date) -> str:
    """Return the document, its expiry and the time that is left."""
    named, expiry = document_title(row), row["expires_on"]
    if expiry is None:
        return f"{named}, no expiry recorded"
    left = (expiry - day).days
    if left < 0:
        return f"{named} expired on {expiry:%-d %B %Y}"
    return f"{named} expires on {expiry:%-d %B %Y} ({_left(left)})"


def _left(days: int) -> str:
    if days == 0:
        return "today"
    if days < 60:
        return f"in {days} {'day' if days == 1 else 'days'}"
    months = round(days / DAYS_OF_MONTH)
    return f"in {months} months" if months < 24 else f"in {round(months / 12)} years"


def shown_document(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    expiry = row["expires_on"]
    return {
        "id": str(row["id"]),
        "kind": row["kind"],
        "holder": row["holder"],
        "number": row["number"],
        "country": row["country"],
        "expires_on": expiry.isoformat() if expiry else None,
        "days_left": (expiry - today(ctx)).days if expiry else None,
        **shown_source(ctx, row),
    }


TOOLS = (document_set, document_list)
