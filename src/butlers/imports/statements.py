"""Bank statements as OFX and QIF, read by plain scanning."""

from __future__ import annotations

from collections.abc import Iterator

from butlers.imports.bank_csv import read_bank_amount
from butlers.imports.model import (
    FileReading,
    ImportOptions,
    Occurrences,
    Row,
    Skipped,
    read_numeric_date,
    short,
)


def read_ofx(text: str, options: ImportOptions) -> FileReading | None:
    """Return the reading of an OFX file (SGML or XML), or None."""
    head = text[:4000].upper()
    if "<OFX>" not in head:
        return None
    return FileReading(
        "bank statement (OFX)",
        "finance",
        "finance_import",
        "transactions",
        lambda skipped: _ofx_rows(text, options, skipped),
        trusted=False,
    )


def read_qif(text: str, options: ImportOptions) -> FileReading | None:
    """Return the reading of a QIF file, or None."""
    if not text.lstrip("\ufeff \r\n").upper().startswith("!TYPE:"):
        return None
    return FileReading(
        "bank statement (QIF)",
        "finance",
        "finance_import",
        "transactions",
        lambda skipped: _qif_rows(text, options, skipped),
        trusted=False,
    )


def _ofx_rows(text: str, options: ImportOptions, skipped: Skipped) -> Iterator[Row]:
    seen = Occurrences()
    fields: dict[str, str] = {}
    currency, account = None, None
    for tag, value in _ofx_tags(text):
        match tag:
            case "CURDEF":
                currency = value.upper()
            case "ACCTID":
                account = value
            case "STMTTRN":
                fields = {}
            case "/STMTTRN":
                row = _ofx_row(fields, options, currency, account, seen)
                if row is None:
                    skipped.add("transactions without a date and an amount")
                else:
                    yield row
            case _ if not tag.startswith("/"):
                fields.setdefault(tag, value)


def _ofx_tags(text: str) -> Iterator[tuple[str, str]]:
    """Yield each tag with the text up to the next one. Tags of SGML have no end."""
    at = text.find("<")
    while at >= 0:
        end = text.find(">", at)
        if end < 0:
            return
        following = text.find("<", end)
        value = text[end + 1 : following if following >= 0 else len(text)]
        yield text[at + 1 : end].strip().upper(), _plain(value)
        at = following


def _plain(value: str) -> str:
    text = value.strip()
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&amp;", "&")):
        text = text.replace(entity, char)
    return text


def _ofx_row(
    fields: dict[str, str],
    options: ImportOptions,
    currency: str | None,
    account: str | None,
    seen: Occurrences,
) -> Row | None:
    day = read_numeric_date(fields.get("DTPOSTED", "")[:8], day_first=False)
    amount = read_bank_amount(fields.get("TRNAMT", ""))
    if day is None or not amount:
        return None
    name, memo = short(fields.get("NAME")), short(fields.get("MEMO"))
    unique = fields.get("FITID")
    key = ("ofx", account, unique) if unique else ("ofx", account, day, amount, name, memo)
    row = {
        "key": seen.key(*key),
        "day": day.isoformat(),
        "amount": f"{amount:f}",
        "currency": currency,
        "description": name or memo or "payment",
        "merchant": name,
        "notes": memo if name and memo != name else None,
        "account": options.account,
        "reference": short(fields.get("CHECKNUM")),
    }
    return {key: value for key, value in row.items() if value is not None}


def _qif_rows(text: str, options: ImportOptions, skipped: Skipped) -> Iterator[Row]:
    seen = Occurrences()
    day_first = options.day_first if options.day_first is not None else _qif_day_first(text)
    fields: dict[str, str] = {}
    for line in text.splitlines():
        code, value = line[:1], line[1:].strip()
        if code == "!":
            fields = {}
        elif code != "^":
            fields.setdefault(code, value)
        else:
            row = _qif_row(fields, options, seen, day_first=day_first)
            fields = {}
            if row is None:
                skipped.add("entries without a date and an amount")
            else:
                yield row


def _qif_day_first(text: str) -> bool:
    """Return True if a first number of a date cannot be a month."""
    for line in text.splitlines():
        if line.startswith("D"):
            first = line[1:].replace("'", "/").replace("-", "/").split("/")[0].strip()
            if first.isdecimal() and 12 < int(first) <= 31:
                return True
    return False


def _qif_row(
    fields: dict[str, str], options: ImportOptions, seen: Occurrences, *, day_first: bool
) -> Row | None:
    day = read_numeric_date(fields.get("D", "").replace("'", "/"), day_first=day_first)
    amount = read_bank_amount(fields.get("T", fields.get("U", "")))
    if day is None or not amount:
        return None
    payee, memo = short(fields.get("P")), short(fields.get("M"))
    category = short(fields.get("L"), 40)
    row = {
        "key": seen.key("qif", options.account, day, amount, payee, memo, fields.get("N")),
        "day": day.isoformat(),
        "amount": f"{amount:f}",
        "description": payee or memo or "payment",
        "merchant": payee,
        "notes": memo,
        "category": category if category and not category.startswith("[") else None,
        "reference": short(fields.get("N")),
        "account": options.account,
    }
    return {key: value for key, value in row.items() if value is not None}
