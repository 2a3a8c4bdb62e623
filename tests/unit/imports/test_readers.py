"""Readers of files: recognized by content, keys that stay the same, safe and bounded."""

from __future__ import annotations

import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.imports import ImportOptions, open_import
from butlers.imports.bank_csv import read_bank_amount
from butlers.imports.model import ImportUnreadable

GERMAN = """Umsätze Girokonto;;;;
Zeitraum: 01.03.2026 - 31.03.2026;;;;

Buchungstag;Auftraggeber / Begünstigter;Verwendungszweck;Betrag (EUR);Währung
03.03.2026;REWE SAGT DANKE;Einkauf;-1.045,15;EUR
04.03.2026;Arbeitgeber GmbH;Gehalt März;2.500,00;EUR
04.03.2026;Bäcker;;-2,50;EUR
04.03.2026;Bäcker;;-2,50;EUR
Saldo;;;;
"""
ENGLISH = """Date,Description,Debit,Credit
03/25/2026,Coffee Shop,4.50,
03/04/2026,"Salary, March",,2500.00
"""
OFX = """OFXHEADER:100
<OFX><BANKMSGSRSV1><STMTTRNRS><STMTRS><CURDEF>USD<BANKACCTFROM><ACCTID>42</BANKACCTFROM>
<BANKTRANLIST><STMTTRN><TRNTYPE>DEBIT<DTPOSTED>20260303120000<TRNAMT>-12.50<FITID>a1<NAME>Caf&amp;e<MEMO>lunch
</STMTTRN><STMTTRN><DTPOSTED>20260304<TRNAMT>100<FITID>a2<NAME>Bob</STMTTRN></BANKTRANLIST></OFX>
"""
QIF = "!Type:Bank\nD25/03/2026\nT-12.50\nPCafe\nLFood\n^\nD04/03'26\nT1,000.00\nPSalary\n^\n"
VCARDS = """BEGIN:VCARD
VERSION:3.0
UID:u1
FN:Alice Smith
NICKNAME:Ali
ORG:Acme\\, Inc;Sales
TITLE:Engineer
TEL;TYPE=CELL:+49 170 1234567
EMAIL;TYPE=HOME:alice@example.org
ADR;TYPE=HOME:;;Main St 1;Rome;;12345;Italy
BDAY:1604-02-29
NOTE:Likes tea\\nand long
  walks
CATEGORIES:friends,tennis
END:VCARD
BEGIN:VCARD
VERSION:2.1
N:M=C3=BCller;Bob
FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:Bob M=C3=BCller
BDAY:19900504
END:VCARD
BEGIN:VCARD
END:VCARD
"""
GOOGLE = (
    "First Name,Last Name,Nickname,Organization Name,Birthday,Notes,Labels,"
    "E-mail 1 - Label,E-mail 1 - Value,Phone 1 - Value\n"
    "Alice,Smith,Ali,Acme,--05-04,Likes tea,friends ::: * myContacts,"
    "Home,a@example.org ::: b@example.org,+49 170 1\n"
)
SPLITWISE = """Date,Description,Category,Cost,Currency,Alice Smith,Bob

2026-03-01,Dinner,Dining out,60.00,EUR,40.00,-40.00
2026-03-02,Taxi,Taxi,20.00,EUR,-10.00,10.00
2026-03-03,Bob paid Alice,Payment,30.00,EUR,-30.00,30.00
2026-03-31,Total balance, , ,EUR,0.00,0.00
"""
ICS = """BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Alice's birthday
DTSTART;VALUE=DATE:20200504
RRULE:FREQ=YEARLY
END:VEVENT
BEGIN:VEVENT
SUMMARY:Dentist
DTSTART:20260301T090000Z
END:VEVENT
END:VCALENDAR
"""
HEALTH = """<?xml version="1.0"?>
<!DOCTYPE HealthData [ <!ELEMENT HealthData (Record*)> ]>
<HealthData locale="en_US">
<Record type="HKQuantityTypeIdentifierBodyMass" unit="kg" value="80.40" startDate="2026-03-01 08:00:00 +0100"
 endDate="2026-03-01 08:00:00 +0100"/>
<Record type="HKQuantityTypeIdentifierOxygenSaturation" unit="%" value="0.97"
 startDate="2026-03-01 08:00:00 +0100" endDate="2026-03-01 08:00:00 +0100"/>
<Correlation type="HKCorrelationTypeIdentifierBloodPressure">
<Record type="HKQuantityTypeIdentifierBloodPressureSystolic" unit="mmHg" value="120"
 startDate="2026-03-01 08:00:00 +0100" endDate="2026-03-01 08:00:00 +0100"/>
<Record type="HKQuantityTypeIdentifierBloodPressureDiastolic" unit="mmHg" value="80"
 startDate="2026-03-01 08:00:00 +0100" endDate="2026-03-01 08:00:00 +0100"/>
</Correlation>
<Record type="HKCategoryTypeIdentifierSleepAnalysis" value="HKCategoryValueSleepAnalysisAsleepCore"
 startDate="2026-03-28 23:00:00 +0100" endDate="2026-03-29 07:30:00 +0200"/>
<Record type="HKQuantityTypeIdentifierHeartRate" unit="count/min" value="70"/>
</HealthData>
"""


def opened(tmp_path: Path, text: str, **options: Any) -> Any:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    found = open_import(path, ImportOptions(**options))
    return found, list(found.rows())


def test_german_bank_csv_is_mapped_below_its_preamble(tmp_path: Path) -> None:
    found, rows = opened(tmp_path, GERMAN)
    assert (found.reading.butler, found.reading.trusted) == ("finance", False)
    assert [row["amount"] for row in rows] == ["-1045.15", "2500.00", "-2.50", "-2.50"]
    assert rows[0]["day"] == "2026-03-03"
    assert rows[0]["merchant"] == "REWE SAGT DANKE"
    assert rows[0]["notes"] == "Einkauf"
    assert len({row["key"] for row in rows}) == 4
    assert found.skipped.counts == {"lines without a date and an amount": 1}
    assert [row["key"] for row in found.rows()] == [row["key"] for row in rows]


def test_windows_encoding_and_debit_credit_columns(tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    assert next(open_import(path).rows())["merchant"] == "REWE SAGT DANKE"
    _, rows = opened(tmp_path, ENGLISH)
    assert [(row["day"], row["amount"]) for row in rows] == [
        ("2026-03-25", "-4.50"),
        ("2026-03-04", "2500.00"),
    ]


def test_ambiguous_dates_are_guessed_and_said(tmp_path: Path) -> None:
    text = "Date,Amount\n03/04/2026,1\n"
    found, rows = opened(tmp_path, text)
    assert rows[0]["day"] == "2026-04-03"
    assert "dates are read as day/month/year" in found.reading.notes[-1]
    assert opened(tmp_path, text, day_first=False)[1][0]["day"] == "2026-03-04"


def test_ofx_and_qif(tmp_path: Path) -> None:
    _, rows = opened(tmp_path, OFX)
    assert rows[0] == rows[0] | {"amount": "-12.50", "currency": "USD", "merchant": "Caf&e"}
    assert [row["day"] for row in rows] == ["2026-03-03", "2026-03-04"]
    _, rows = opened(tmp_path, QIF)
    assert [(row["day"], row["amount"]) for row in rows] == [
        ("2026-03-25", "-12.50"),
        ("2026-03-04", "1000.00"),
    ]


def test_vcards_with_unknown_year_folding_and_quoted_printable(tmp_path: Path) -> None:
    found, rows = opened(tmp_path, VCARDS)
    alice, bob = rows
    assert alice["company"] == "Acme, Inc"
    assert alice["dates"] == [{"label": "birthday", "month": 2, "day": 29}]
    assert {way["kind"]: way["value"] for way in alice["contacts"]} == {
        "phone": "+49 170 1234567",
        "email": "alice@example.org",
        "address": "Main St 1, Rome, 12345, Italy",
    }
    assert alice["notes"] == ["Likes tea\nand long walks"]
    assert (alice["groups"], alice["aliases"]) == (["friends", "tennis"], ["Ali"])
    assert bob["name"] == "Bob Müller"
    assert bob["dates"] == [{"label": "birthday", "month": 5, "day": 4, "year": 1990}]
    assert found.skipped.counts == {"cards without a name": 1}


def test_google_contacts(tmp_path: Path) -> None:
    _, (row,) = opened(tmp_path, GOOGLE)
    assert (row["name"], row["company"], row["groups"]) == ("Alice Smith", "Acme", ["friends"])
    assert [way["value"] for way in row["contacts"]] == [
        "a@example.org",
        "b@example.org",
        "+49 170 1",
    ]
    assert row["dates"] == [{"label": "birthday", "month": 5, "day": 4}]


def test_splitwise_needs_to_know_the_owner(tmp_path: Path) -> None:
    with pytest.raises(ImportUnreadable) as caught:
        opened(tmp_path, SPLITWISE)
    assert "Alice Smith, Bob" in (caught.value.hint or "")
    found, rows = opened(tmp_path, SPLITWISE, me="alice")
    assert rows[0]["amount"] == "-60.00"
    assert rows[0]["shares"] == [{"owed_by": "Bob", "amount": "40.00"}]
    assert (rows[1]["amount"], rows[1]["notes"]) == ("-10.00", "paid by Bob (Splitwise)")
    assert found.skipped.counts == {"payments between people": 1, "expenses without your part": 1}


def test_calendar_gives_birthdays_and_says_what_is_left_out(tmp_path: Path) -> None:
    found, (row,) = opened(tmp_path, ICS)
    assert (row["name"], row["dates"]) == (
        "Alice",
        [{"label": "birthday", "month": 5, "day": 4}],
    )
    assert found.skipped.counts == {"calendar entries, because no butler keeps a calendar yet": 1}


def test_apple_health_is_streamed_from_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("apple_health_export/export.xml", HEALTH)
    found = open_import(path)
    weight, oxygen, pressure, sleep = found.rows()
    assert (weight["type"], weight["value"], weight["unit"]) == ("weight", "80.4", "kg")
    assert (oxygen["value"], oxygen["unit"]) == ("97", "%")
    assert (pressure["value"], pressure["second"]) == ("120", "80")
    assert sleep["value"] == "7.50"  # the night of the clock change
    assert found.skipped.counts == {"records of other types": 1}


def test_entities_and_damaged_archives_are_refused(tmp_path: Path) -> None:
    bomb = HEALTH.replace("<!ELEMENT HealthData (Record*)>", '<!ENTITY a "aaaa">')
    found, _ = tmp_path / "bomb.xml", None
    found.write_text(bomb)
    with pytest.raises(ImportUnreadable, match="entities"):
        list(open_import(found).rows())
    cut = tmp_path / "cut.xml"
    cut.write_text(HEALTH[: HEALTH.index("</Correlation>")])
    with pytest.raises(ImportUnreadable, match="damaged"):
        list(open_import(cut).rows())


def test_unknown_files_are_refused(tmp_path: Path) -> None:
    for content in (b"hello", b"\x89PNG\0\0", b"", b"a,b\n1,2\n"):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(ImportUnreadable, match="no known kind"):
            open_import(path)


@given(st.text(max_size=400))
def test_no_text_breaks_the_readers(text: str) -> None:
    from butlers.imports.bank_csv import read_bank_csv
    from butlers.imports.contacts import read_calendar, read_vcards
    from butlers.imports.model import Skipped
    from butlers.imports.statements import read_ofx, read_qif

    options = ImportOptions()
    for read, prefix in (
        (read_vcards, "BEGIN:VCARD\n"),
        (read_calendar, "BEGIN:VCALENDAR\n"),
    ):
        found = read(prefix + text)
        assert found is not None
        list(found.rows(Skipped()))
    for read_statement, prefix in (
        (read_ofx, "<OFX><STMTTRN>"),
        (read_qif, "!Type:Bank\n"),
        (read_bank_csv, "Date;Amount\n"),
    ):
        statement = read_statement(prefix + text, options)
        if statement is not None:
            list(statement.rows(Skipped()))


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=2))
def test_amounts_of_both_notations_are_read_exactly(amount: Decimal) -> None:
    english = f"{amount:,.2f}"
    german = english.replace(",", "_").replace(".", ",").replace("_", ".")
    assert read_bank_amount(english) == amount
    assert read_bank_amount(german) == amount
    assert read_bank_amount(f"{german} EUR") == amount
