"""Splitwise exports: who paid, and who owes which share."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from butlers.imports.bank_csv import read_bank_amount, split_rows
from butlers.imports.model import (
    FileReading,
    ImportOptions,
    ImportUnreadable,
    Occurrences,
    Row,
    Skipped,
    read_numeric_date,
    short,
)

HEADER = ["date", "description", "category", "cost", "currency"]


def read_splitwise(text: str, options: ImportOptions) -> FileReading | None:
    """Return the reading, or None if the text is no Splitwise file. Raises if the owner is unknown."""
    first = next(iter(text.lstrip("\ufeff").splitlines()), "")
    header = next(iter(split_rows(first[:5000], ",")), [])
    if [name.strip().casefold() for name in header[:5]] != HEADER or len(header) < 6:
        return None
    people = [name.strip() for name in header[5:]]
    me = _me(people, options)
    return FileReading(
        "Splitwise expenses",
        "finance",
        "finance_import",
        "transactions",
        lambda skipped: _rows(text, people, me, skipped),
        trusted=False,
        notes=(f"you are {people[me]}",),
    )


def _me(people: list[str], options: ImportOptions) -> int:
    wanted = (options.me or "").casefold()
    found = [n for n, name in enumerate(people) if wanted and wanted in name.casefold()]
    if len(found) != 1:
        raise ImportUnreadable(
            "it is unknown which of the people is you",
            hint=f"add --me NAME with one of: {', '.join(people)}",
        )
    return found[0]


def _rows(text: str, people: list[str], me: int, skipped: Skipped) -> Iterator[Row]:
    seen = Occurrences()
    lines = split_rows(text.lstrip("\ufeff"), ",")
    next(lines, None)
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        row = _row(cells, people, me, seen)
        if isinstance(row, str):
            skipped.add(row)
        else:
            yield row


def _row(cells: list[str], people: list[str], me: int, seen: Occurrences) -> Row | str:
    """Return the row of the owner, or the reason why the line is left out."""
    day = read_numeric_date(cells[0], day_first=False)
    if day is None or len(cells) < 5 + len(people):
        return "lines without an expense"
    description, category = short(cells[1]) or "expense", short(cells[2], 40)
    if category == "Payment":
        return "payments between people"
    nets = [read_bank_amount(cell) or Decimal(0) for cell in cells[5 : 5 + len(people)]]
    cost = read_bank_amount(cells[3]) or Decimal(0)
    own = nets[me]
    if cost <= 0 or own == 0:
        return "expenses without your part"
    if sum(net > 0 for net in nets) > 1:
        return "expenses with several payers"
    base = {
        "key": seen.key("splitwise", day, description, cost, cells[4], own),
        "day": day.isoformat(),
        "currency": short(cells[4]),
        "description": description,
    }
    if own < 0:
        payer = next((name for name, net in zip(people, nets, strict=True) if net > 0), "another")
        return {**base, "amount": f"{own:f}", "notes": f"paid by {payer} (Splitwise)"}
    shares = [
        {"owed_by": name, "amount": f"{-net:f}"}
        for name, net in zip(people, nets, strict=True)
        if net < 0
    ]
    return {**base, "amount": f"{-cost:f}", "shares": shares, "notes": "shared (Splitwise)"}
