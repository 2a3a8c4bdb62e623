"""Conversion of group texts into tool arguments."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from butlers.skills.reflexes.reflex import CONVERSIONS, convert
from butlers.skills.reflexes.values import GroupRule, Moment

BERLIN = ZoneInfo("Europe/Berlin")
# A Wednesday, noon in Berlin.
MOMENT = Moment(datetime(2026, 5, 6, 10, 0, tzinfo=UTC), BERLIN)


def value(kind, text, moment=MOMENT, **options):
    converted = convert(text, GroupRule(kind, **options), moment)
    return None if converted is None else converted.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80.4", 80.4),
        ("80,4", 80.4),
        ("80.40", 80.4),
        ("80.0", 80),
        ("80", 80),
        ("007", 7),
        (".5", 0.5),
        ("0,500", 0.5),
        ("1,234", 1234),
        ("1.234", 1.234),
        ("1,234.5", 1234.5),
        ("1.234,5", 1234.5),
        ("1.234.567", 1234567),
        ("1 234,5", 1234.5),
        ("1\u202f234.5", 1234.5),
        ("1'234.50", 1234.5),
        ("-3", -3),
        ("\u22123,5", -3.5),
        ("+4", 4),
        ("0.1", 0.1),
        ("1.23456789012345678901", "1.23456789012345678901"),
        ("5.", None),
        ("1,23,4", None),
        ("1,234,5", None),
        ("12 34", None),
        ("1e5", None),
        ("nan", None),
        ("\u0663", None),
        ("", None),
        ("9" * 31, None),
    ],
)
def test_number(text, expected):
    got = value("number", text)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-3", -3),
        ("10,000", 10000),
        ("10.000", 10000),
        ("10 000", 10000),
        ("3.0", 3),
        ("3.5", None),
        ("x", None),
        ("٣", None),
    ],
)
def test_integer(text, expected):
    assert value("integer", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kg", "kg"),
        ("KG", "kg"),
        ("Kilos", "kg"),
        ("lbs", "lb"),
        ("lbs.", "lb"),
        ("Pounds", "lb"),
        ("st", "st"),
        ("cm", "cm"),
        ("Miles", "mi"),
        ('"', "in"),
        ("feet", "ft"),
        ("°c", "°C"),
        ("F", "°F"),
        ("mmhg", "mmHg"),
        ("BPM", "bpm"),
        ("mg/dl", "mg/dL"),
        ("mmol/l", "mmol/L"),
        ("calories", "kcal"),
        ("ML", "ml"),
        ("litres", "l"),
        ("minutes", "min"),
        ("hrs", "h"),
        ("step", "steps"),
        ("percent", "%"),
        ("furlong", None),
        ("", None),
    ],
)
def test_unit(text, expected):
    assert value("unit", text) == expected


@pytest.mark.parametrize(
    ("text", "default", "amount", "currency"),
    [
        ("12.50", "EUR", "12.50", "EUR"),
        ("12,5", "EUR", "12.5", "EUR"),
        ("12", "EUR", "12", "EUR"),
        ("€12,50", None, "12.50", "EUR"),
        ("12.50 €", None, "12.50", "EUR"),
        ("CHF 3", "EUR", "3", "CHF"),
        ("3 chf", None, "3", "CHF"),
        ("12 dollars", None, "12", "USD"),
        ("$5", "AUD", "5", "AUD"),
        ("$5", "EUR", "5", "USD"),
        ("100 kr", "SEK", "100", "SEK"),
        ("-$5.00", None, "-5.00", "USD"),
        ("1,234", "EUR", "1234", "EUR"),
        ("1.234", "EUR", "1234", "EUR"),
        ("1.234,50 EUR", None, "1234.50", "EUR"),
        ("£1,234.50", None, "1234.50", "GBP"),
        ("1500 yen", None, "1500", "JPY"),
        ("1.5 KWD", None, "1.5", "KWD"),
    ],
)
def test_money(text, default, amount, currency):
    converted = convert(text, GroupRule("money", default_currency=default), MOMENT)
    assert converted.value == {"amount": amount, "currency": currency}
    assert converted.parts["amount"] == amount
    assert converted.display == f"{amount} {currency}"


@pytest.mark.parametrize(
    "text",
    [
        "12.50",
        "12 xyz",
        "€",
        "",
        "12.5051 EUR",
        "15.5 JPY",
        "1.234 KWD",
        "€12 USD",
        "100 kr",
        "1e3 EUR",
    ],
)
def test_ambiguous_money_is_rejected(text):
    assert value("money", text) is None


@pytest.mark.parametrize(
    ("text", "future", "past"),
    [
        ("today", "2026-05-06", "2026-05-06"),
        ("Yesterday", "2026-05-05", "2026-05-05"),
        ("tomorrow", "2026-05-07", "2026-05-07"),
        ("the day after tomorrow", "2026-05-08", "2026-05-08"),
        ("friday", "2026-05-08", "2026-05-01"),
        ("on Wed", "2026-05-06", "2026-05-06"),
        ("next wednesday", "2026-05-13", "2026-05-13"),
        ("last wednesday", "2026-04-29", "2026-04-29"),
        ("3 May", "2027-05-03", "2026-05-03"),
        ("May 3rd", "2027-05-03", "2026-05-03"),
        ("the 3rd of May", "2027-05-03", "2026-05-03"),
        ("3 May 2026", "2026-05-03", "2026-05-03"),
        ("Sept. 9, 2026", "2026-09-09", "2026-09-09"),
        ("2026-05-03", "2026-05-03", "2026-05-03"),
        ("3.5.2026", "2026-05-03", "2026-05-03"),
        ("24.12.", "2026-12-24", "2025-12-24"),
        ("29 Feb", "2028-02-29", "2024-02-29"),
        ("in 3 days", "2026-05-09", "2026-05-09"),
        ("a week ago", "2026-04-29", "2026-04-29"),
        ("31 June", None, None),
        ("2026-02-30", None, None),
        ("3/5/2026", None, None),
        ("someday", None, None),
        ("0001-01-01", "0001-01-01", "0001-01-01"),
        ("\u0663 May", None, None),
    ],
)
def test_date(text, future, past):
    assert value("date", text) == future
    assert value("date", text, prefer="past") == past


def test_date_is_in_the_butlers_time_zone():
    late = Moment(datetime(2026, 5, 6, 22, 30, tzinfo=UTC), BERLIN)
    assert value("date", "today", late) == "2026-05-07"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8am", "08:00:00+02:00"),
        ("08:30", "08:30:00+02:00"),
        ("8:30 pm", "20:30:00+02:00"),
        ("8 p.m.", "20:00:00+02:00"),
        ("12am", "00:00:00+02:00"),
        ("12pm", "12:00:00+02:00"),
        ("noon", "12:00:00+02:00"),
        ("midnight", "00:00:00+02:00"),
        ("18h30", "18:30:00+02:00"),
        ("9 o'clock", "09:00:00+02:00"),
        ("at 9", "09:00:00+02:00"),
        ("23:59:59", "23:59:59+02:00"),
        ("24:00", None),
        ("13pm", None),
        ("8:60", None),
        ("\u0668am", None),
    ],
)
def test_time(text, expected):
    assert value("time", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-05-06T12:00:00+02:00"),
        ("tomorrow at 9", "2026-05-07T09:00:00+02:00"),
        ("9am tomorrow", "2026-05-07T09:00:00+02:00"),
        ("in 10 minutes", "2026-05-06T12:10:00+02:00"),
        ("in an hour and a half", "2026-05-06T13:30:00+02:00"),
        ("10 minutes from now", "2026-05-06T12:10:00+02:00"),
        ("5 minutes ago", "2026-05-06T11:55:00+02:00"),
        ("in 2 days", "2026-05-08T12:00:00+02:00"),
        ("today 18:00", "2026-05-06T18:00:00+02:00"),
        ("today at 8", "2026-05-06T08:00:00+02:00"),
        ("18:00", "2026-05-06T18:00:00+02:00"),
        ("8am", "2026-05-07T08:00:00+02:00"),
        ("wednesday at 9am", "2026-05-13T09:00:00+02:00"),
        ("wed 20:00", "2026-05-06T20:00:00+02:00"),
        ("on friday at noon", "2026-05-08T12:00:00+02:00"),
        ("3 May 2026, 9:30 am", "2026-05-03T09:30:00+02:00"),
        ("2026-12-03T09:00", "2026-12-03T09:00:00+01:00"),
        ("2026-05-03T09:00Z", "2026-05-03T11:00:00+02:00"),
        ("tomorrow", None),
        ("tomorrow 9", None),
        ("1 May 20", None),
        ("in a moment", None),
        ("0001-01-01 00:00", None),
    ],
)
def test_datetime(text, expected):
    assert value("datetime", text) == expected


def test_prefer_past_selects_the_previous_date():
    assert value("datetime", "8am", prefer="past") == "2026-05-06T08:00:00+02:00"
    assert value("datetime", "18:00", prefer="past") == "2026-05-05T18:00:00+02:00"
    assert value("datetime", "wed 20:00", prefer="past") == "2026-04-29T20:00:00+02:00"


@pytest.mark.parametrize(
    ("zone", "now", "text", "expected"),
    [
        # Berlin springs from 02:00 to 03:00: a time in between moves forward.
        ("Europe/Berlin", (2026, 3, 28, 12), "tomorrow at 02:30", "2026-03-29T03:30:00+02:00"),
        ("Europe/Berlin", (2026, 3, 28, 12), "tomorrow at 01:59", "2026-03-29T01:59:00+01:00"),
        ("Europe/Berlin", (2026, 3, 28, 12), "tomorrow at 3", "2026-03-29T03:00:00+02:00"),
        # An hour passes although the clock on the wall moves by two.
        ("Europe/Berlin", (2026, 3, 29, 0, 30), "in 1 hour", "2026-03-29T03:30:00+02:00"),
        # A day keeps the time on the wall, though it has 23 hours.
        ("Europe/Berlin", (2026, 3, 28, 12), "in 1 day", "2026-03-29T13:00:00+02:00"),
        # Berlin falls from 03:00 to 02:00: the first of two counts.
        ("Europe/Berlin", (2026, 10, 24, 12), "tomorrow at 02:30", "2026-10-25T02:30:00+02:00"),
        ("Europe/Berlin", (2026, 10, 25, 0, 30), "in 1 hour", "2026-10-25T02:30:00+01:00"),
        # In the second half past two the first has passed, so "02:30" is tomorrow's.
        ("Europe/Berlin", (2026, 10, 25, 1, 10), "02:30", "2026-10-26T02:30:00+01:00"),
        # Lord Howe Island moves by half an hour.
        ("Australia/Lord_Howe", (2026, 10, 3, 3), "tomorrow at 02:15", "2026-10-04T02:45:00+11:00"),
        ("Australia/Lord_Howe", (2026, 4, 4, 3), "tomorrow at 01:45", "2026-04-05T01:45:00+11:00"),
        ("Australia/Lord_Howe", (2026, 4, 4, 3), "tomorrow at 2", "2026-04-05T02:00:00+10:30"),
    ],
)
def test_clock_changes(zone, now, text, expected):
    moment = Moment(datetime(*now, tzinfo=UTC), ZoneInfo(zone))
    assert value("datetime", text, moment) == expected
    local = Moment(moment.now.astimezone(ZoneInfo(zone)), ZoneInfo(zone))
    assert value("datetime", text, local) == expected


@pytest.mark.parametrize(
    ("text", "seconds", "display"),
    [
        ("10 minutes", 600, "10 minutes"),
        ("1h30", 5400, "1 hour 30 minutes"),
        ("1h 5m", 3900, "1 hour 5 minutes"),
        ("2 hours and 5 min", 7500, "2 hours 5 minutes"),
        ("2 hours, 5 minutes", 7500, "2 hours 5 minutes"),
        ("half an hour", 1800, "30 minutes"),
        ("an hour and a half", 5400, "1 hour 30 minutes"),
        ("a quarter of an hour", 900, "15 minutes"),
        ("1.5h", 5400, "1 hour 30 minutes"),
        ("1,5 hours", 5400, "1 hour 30 minutes"),
        ("Ten Minutes", 600, "10 minutes"),
        ("2 weeks", 1209600, "14 days"),
        ("45s", 45, "45 seconds"),
        ("0 minutes", 0, "0 seconds"),
    ],
)
def test_duration(text, seconds, display):
    converted = convert(text, GroupRule("duration"), MOMENT)
    assert converted.value == seconds
    assert converted.parts == {"text": display}
    assert converted.display == display


@pytest.mark.parametrize(
    "text",
    [
        "90",
        "",
        "h",
        "1h and",
        "2h 1h",
        "5 min 1 h",
        "0.5 seconds",
        "1h5",
        "1h99",
        "999999999 weeks",
        "\u0661h",
    ],
)
def test_invalid_duration_is_rejected(text):
    assert value("duration", text) is None


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_declared_parts_match_the_converted_parts(kind):
    samples = {"number": "1", "integer": "1", "unit": "kg", "money": "1 EUR", "date": "today"}
    samples |= {"time": "8am", "datetime": "now", "duration": "1h", "text": "x", "when": "friday"}
    assert tuple(convert(samples[kind], GroupRule(kind), MOMENT).parts) == CONVERSIONS[kind].parts


def test_date_overflow_is_no_match():
    end = Moment(datetime.max.replace(tzinfo=UTC), BERLIN)
    for kind in ("date", "time", "datetime"):
        assert value(kind, "tomorrow at 9", end) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("morgen um 9", "2026-05-07T09:00:00+02:00"),
        ("morgen um halb zehn", "2026-05-07T09:30:00+02:00"),
        ("heute um 18 Uhr", "2026-05-06T18:00:00+02:00"),
        ("am Freitag um 9 Uhr 30", "2026-05-08T09:30:00+02:00"),
        ("Freitag morgen", "2026-05-08T09:00:00+02:00"),
        ("heute Abend", "2026-05-06T18:00:00+02:00"),
        ("in 10 Minuten", "2026-05-06T12:10:00+02:00"),
        ("in einer Stunde", "2026-05-06T13:00:00+02:00"),
        ("in einer halben Stunde", "2026-05-06T12:30:00+02:00"),
        ("in zwei Wochen", "2026-05-20T12:00:00+02:00"),
        ("vor 3 Stunden", "2026-05-06T09:00:00+02:00"),
        ("übermorgen um 7:15 Uhr", "2026-05-08T07:15:00+02:00"),
        ("am 3. Juni um 8 Uhr", "2026-06-03T08:00:00+02:00"),
        ("tonight", "2026-05-06T20:00:00+02:00"),
        ("tomorrow morning", "2026-05-07T09:00:00+02:00"),
        ("this evening", "2026-05-06T18:00:00+02:00"),
        ("friday in the afternoon", "2026-05-08T15:00:00+02:00"),
    ],
)
def test_german_and_natural_times(text, expected):
    assert value("datetime", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("heute", "2026-05-06"),
        ("übermorgen", "2026-05-08"),
        ("am Freitag", "2026-05-08"),
        ("nächsten Mittwoch", "2026-05-13"),
        ("letzten Montag", "2026-05-04"),
        ("4. Mai", "2027-05-04"),
        ("am 24.12.", "2026-12-24"),
        ("the 1st", "2026-06-01"),
        ("on the 31st", "2026-05-31"),
        ("am 15.", "2026-05-15"),
        ("in 3 Monaten", "2026-08-06"),
        ("in two years", "2028-05-06"),
        ("vor einer Woche", "2026-04-29"),
        ("a month ago", "2026-04-06"),
    ],
)
def test_german_and_natural_dates(text, expected):
    assert value("date", text) == expected


@pytest.mark.parametrize(
    "text", ["99.", "the 32nd", "morgen 25 Uhr", "am am", "der die das", "vor"]
)
def test_german_words_that_name_no_date_are_no_match(text):
    assert value("date", text) is None
    assert value("datetime", text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 Minuten", 600), ("anderthalb Stunden", 5400), ("2 Std und 5 Minuten", 7500)],
)
def test_german_durations(text, seconds):
    assert value("duration", text) == seconds


@pytest.mark.parametrize(
    ("text", "amount"), [("12,50 €", "12.50"), ("12,50 Euro", "12.50"), ("1.200 EUR", "1200")]
)
def test_german_money(text, amount):
    assert value("money", text) == {"amount": amount, "currency": "EUR"}
