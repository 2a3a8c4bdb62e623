"""Bank statements as CSV: delimiter, columns, decimal mark and order of the date are guessed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

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
from butlers.skills.reflexes.quantities import CURRENCIES, read_decimal

DELIMITERS = (";", ",", "\t", "|")
HEADER_LINES = 40

_COLUMNS = {
    "day": """
        date; datum; buchungstag; buchungsdatum; booking date; transaction date; posted date; posting date;
        completed date; value date; valutadatum; wertstellung; date completed (utc)
        """,
    "amount": """
        amount; betrag; umsatz; amount (eur); betrag (eur); betrag (€); value; transaction amount; net
        """,
    "debit": "debit; debit amount; soll; withdrawal; withdrawals; paid out; money out; ausgang",
    "credit": "credit; credit amount; haben; deposit; deposits; paid in; money in; eingang",
    "description": """
        description; verwendungszweck; memo; details; narrative; buchungstext; text; reference;
        payment reference; transaction description; notes; zweck
        """,
    "merchant": """
        payee; name; merchant; counterparty; empfänger; empfaenger; zahlungsempfänger; zahlungsempfänger*in;
        beguenstigter/zahlungspflichtiger; begünstigter / auftraggeber; auftraggeber / begünstigter;
        auftraggeber/empfänger; name zahlungsbeteiligter; partner name; beneficiary
        """,
    "currency": "currency; währung; waehrung; payment currency",
    "category": "category; kategorie",
    "reference": "transaction id; id; transaction number; fitid; referenz",
}
_FIELD_OF = {
    name.strip(): field
    for field, names in _COLUMNS.items()
    for name in " ".join(names.split()).split(";")
}


@dataclass(frozen=True, slots=True)
class _Table:
    columns: dict[str, int]
    rows: list[list[str]]
    day_first: bool


def read_bank_csv(text: str, options: ImportOptions) -> FileReading | None:
    """Return the reading, or None if the text is no bank statement."""
    found = _find_table(text)
    if found is None:
        return None
    columns, rows = found
    days = [_cell(row, columns["day"]) for row in rows]
    day_first, guessed = _day_first(days, options)
    table = _Table(columns, rows, day_first)
    named = ", ".join(f"{field} = column {number + 1}" for field, number in columns.items())
    notes = [f"columns: {named}"]
    if guessed:
        order = "day/month/year" if day_first else "month/day/year"
        notes.append(f"dates are read as {order}; --day-first or --month-first changes it")
    return FileReading(
        "bank statement (CSV)",
        "finance",
        "finance_import",
        "transactions",
        lambda skipped: _rows(table, options, skipped),
        trusted=False,
        notes=tuple(notes),
    )


def split_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Split CSV text into rows. Raises ImportUnreadable for a field beyond the limit."""
    try:
        yield from csv.reader(io.StringIO(text), delimiter=delimiter)
    except csv.Error as error:
        raise ImportUnreadable(f"the CSV cannot be read: {error}") from error


def _find_table(text: str) -> tuple[dict[str, int], list[list[str]]] | None:
    """Return the columns and the rows below the header, which may stand below a preamble."""
    lines = text.splitlines()
    for number, line in enumerate(lines[:HEADER_LINES]):
        for delimiter in DELIMITERS:
            columns = _columns(next(iter(csv.reader([line[:5000]], delimiter=delimiter)), []))
            if "day" in columns and ("amount" in columns or {"debit", "credit"} <= columns.keys()):
                rows = list(split_rows("\n".join(lines[number + 1 :]), delimiter))
                return columns, [row for row in rows if any(cell.strip() for cell in row)]
    return None


def _columns(header: Sequence[str]) -> dict[str, int]:
    """Return the first column of each field."""
    found: dict[str, int] = {}
    for number, name in enumerate(header):
        field = _FIELD_OF.get(" ".join(name.split()).casefold().strip('\ufeff" '))
        if field and field not in found:
            found[field] = number
    return found


def _day_first(days: Sequence[str], options: ImportOptions) -> tuple[bool, bool]:
    """Return whether the day comes first in dates with slashes, and whether that is only a guess."""
    if options.day_first is not None:
        return options.day_first, False
    slashed = [day.split("/") for day in days if day.count("/") == 2]
    firsts = [int(parts[0]) for parts in slashed if parts[0].strip().isdecimal()]
    seconds = [int(parts[1]) for parts in slashed if parts[1].strip().isdecimal()]
    if any(first > 12 for first in firsts if first < 1000):
        return True, False
    if any(second > 12 for second in seconds):
        return False, False
    return True, bool(slashed)


def _rows(table: _Table, options: ImportOptions, skipped: Skipped) -> Iterator[Row]:
    seen = Occurrences()
    for cells in table.rows:
        day = read_numeric_date(_cell(cells, table.columns["day"]), day_first=table.day_first)
        amount = _amount(cells, table.columns)
        if day is None or amount is None:
            skipped.add("lines without a date and an amount")
            continue
        if amount == 0:
            skipped.add("amounts of zero")
            continue
        yield _row(cells, table.columns, options, seen, day.isoformat(), amount)


def _row(
    cells: Sequence[str],
    columns: dict[str, int],
    options: ImportOptions,
    seen: Occurrences,
    day: str,
    amount: Decimal,
) -> Row:
    def text(field: str) -> str | None:
        return short(_cell(cells, columns[field])) if field in columns else None

    merchant, description = text("merchant"), text("description")
    currency = (text("currency") or "").upper()
    code = currency if currency in CURRENCIES else None
    said = merchant or description or "payment"
    row = {
        "key": seen.key("bank", options.account, day, amount, code, merchant, description),
        "day": day,
        "amount": f"{amount:f}",
        "currency": code,
        "description": said,
        "merchant": merchant,
        "notes": description if merchant and description != merchant else None,
        "category": text("category"),
        "reference": text("reference"),
        "account": options.account,
    }
    return {key: value for key, value in row.items() if value is not None}


def _amount(cells: Sequence[str], columns: dict[str, int]) -> Decimal | None:
    if "amount" in columns:
        return read_bank_amount(_cell(cells, columns["amount"]))
    debit = read_bank_amount(_cell(cells, columns["debit"])) or Decimal(0)
    credit = read_bank_amount(_cell(cells, columns["credit"])) or Decimal(0)
    return abs(credit) - abs(debit) if debit or credit else None


def read_bank_amount(text: str) -> Decimal | None:
    """Return the amount of "1.234,56-", "(12.50)", "-12.50 EUR" or "+3"."""
    kept = "".join(char for char in text[:40] if char.isdigit() or char in ".,'-−+()")
    negative = kept.startswith(("-", "−", "(")) or kept.endswith(("-", "−"))
    found = read_decimal(kept.strip("-−+()"), coarse=True)
    return None if found is None else -found if negative else found


def _cell(cells: Sequence[str], number: int) -> str:
    return cells[number] if number < len(cells) else ""
