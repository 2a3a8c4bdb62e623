"""Match messages, fill arguments, format replies."""

import dataclasses
import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.skills.reflexes import conflicts

NOW = datetime(2026, 5, 6, 10, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def match(book, text):
    return book.match(text, NOW, BERLIN)


def test_realistic_book_has_no_diagnostics(book):
    assert book.diagnostics == ()
    names = [reflex.name for reflex in book.reflexes]
    assert names == ["log-weight", "last-weight", "spend", "remind", "ping"]
    assert book.patterns[-1] == "(?i)ping"
    with pytest.raises(dataclasses.FrozenInstanceError):
        book.reflexes = ()


@pytest.mark.parametrize(
    ("text", "arguments", "reply"),
    [
        (
            "Weight: 80,4",
            {"type": "weight", "value": 80.4, "unit": "kg"},
            "Logged: weight 80.4 kg.",
        ),
        (
            "weight 180 Pounds",
            {"type": "weight", "value": 180, "unit": "lb"},
            "Logged: weight 180 lb.",
        ),
        (
            "spent $5.00 on tea yesterday",
            {
                "amount": "5.00",
                "money": {"amount": "5.00", "currency": "USD"},
                "note": "tea on 2026-05-05",
                "tags": ["tea", "{fixed}"],
                "nested": {"day": "2026-05-05"},
            },
            "5.00 USD for tea, yesterday. Braces: {}",
        ),
        (
            "remind me in 10 minutes to stretch",
            {"at": "2026-05-06T12:10:00+02:00", "text": "stretch"},
            "I will remind you today at 12:10: stretch.",
        ),
        (
            "remind me tomorrow at 9 to run for 10 min",
            {"at": "2026-05-07T09:00:00+02:00", "text": "run", "seconds": 600},
            "I will remind you tomorrow at 09:00: run. 10 minutes",
        ),
        ("ping", {}, "pong"),
    ],
)
def test_match(book, text, arguments, reply):
    found = match(book, text)
    assert found.arguments == arguments
    assert found.reply({"ok": True}) == reply
    assert found.skill == "notes"
    json.dumps(found.arguments, allow_nan=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "weight",
        "weight 1.2.3",
        "my weight 80",
        "remind me sometime to rest",
        "ping " + "x" * 1000,
    ],
)
def test_no_match(book, text):
    assert match(book, text) is None


def test_a_reflex_without_a_tool_only_replies(book):
    found = match(book, "ping")
    assert (found.name, found.tool, found.reply()) == ("ping", None, "pong")


@pytest.mark.parametrize("empty", [None, {}, [], "", {"result": None}, {"result": []}, {"a": None}])
def test_an_empty_result_has_its_own_reply(book, empty):
    assert match(book, "weight?").reply(empty) == "No weight recorded yet."


@pytest.mark.parametrize(
    ("result", "reply"),
    [
        ({"value": 80.0, "unit": "kg", "when": ["today"]}, "80 kg, today"),
        ({"result": {"value": 80.0, "unit": "kg", "when": ["today"]}}, "80 kg, today"),
        ({"value": 0}, "0 ?, ?"),
        ("text", "? ?, ?"),
        ({"value": {"__class__": 1}, "when": "x"}, "__class__: 1 ?, ?"),
        ([{"value": 1}, {"value": 2}], "1, 2 ?, ?"),
    ],
)
def test_missing_result_is_shown_as_a_question_mark(book, result, reply):
    assert match(book, "weight?").reply(result) == reply


def test_constant_date_is_passed_as_text(book):
    found = match(book, "weight ?")
    assert found.arguments == {"type": "weight", "limit": 1, "since": "2020-01-01"}


def test_missing_required_group_is_no_match(skills):
    skills.write(
        """version = 1
[[reflex]]
name = "a"
pattern = 'a(?P<b>b)?'
reply = "{b}"
groups = { b = { required = true } }
"""
    )
    book = skills.load()
    assert book.diagnostics == ()
    assert match(book, "a") is None
    assert match(book, "ab").reply() == "b"


def test_skills_in_name_order_and_reflexes_in_file_order(skills):
    entry = '[[reflex]]\nname = "{0}"\npattern = "hi"\nreply = "{0}"\n'
    skills.write("version = 1\n" + entry.format("late"), "zebra")
    skills.write("version = 1\n" + entry.format("first") + entry.format("second"), "apple")
    book = skills.load()
    assert [reflex.name for reflex in book.reflexes] == ["first", "second", "late"]
    assert match(book, "hi").name == "first"


_WORDS = st.sampled_from(
    [
        "weight",
        "spent",
        "remind me",
        "on",
        "to",
        "in",
        "at",
        "tomorrow",
        "80,4",
        "kg",
        "$5",
        "€",
        "9",
        "minutes",
        "friday",
        "29 Feb",
        "24:00",
        "12am",
        "0000-00-00",
        "9999-12-31",
        "for",
        "?",
        "٣",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("value"), inner),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text() | st.lists(_WORDS, max_size=9).map(" ".join),
    now=st.datetimes(timezones=st.just(UTC)),
    zone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "UTC"]),
    result=_JSON,
)
def test_any_text_matches_or_not_without_an_exception(book, text, now, zone, result):
    found = book.match(text, now, ZoneInfo(zone))
    if found is not None:
        json.dumps(found.arguments, allow_nan=False)
        assert isinstance(found.reply(result), str)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    when=st.lists(_WORDS, min_size=1, max_size=4).map(" ".join) | st.text(max_size=20),
    now=st.datetimes(timezones=st.just(UTC)),
)
def test_any_time_expression_has_a_zone_or_does_not_match(book, when, now):
    found = book.match(f"remind me {when} to rest", now, BERLIN)
    if found is not None and "at" in found.arguments:
        assert datetime.fromisoformat(found.arguments["at"]).tzinfo is not None


TODOS = r"""
version = 1

[[reflex]]
name = "todos"
patterns = ['(?i)what.s due (?P<day>.+)', '(?i)was ist (?P<day>.+) fällig', '(?i)todos']
tool = "todo_list"
reply = "To do {day}:\n{list}"
reply_empty = "Nothing is due."
list = "todos"
line = "- {title} ({due})"
examples = ["what's due tomorrow", "was ist heute fällig", "todos"]
not_examples = ["what's new tomorrow", "what's due somewhen"]
groups.day = { type = "date", default = "today" }
arguments.day = "{day}"
"""


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("what's due Friday", "2026-05-08"),
        ("was ist morgen fällig", "2026-05-07"),
        ("Todos", "2026-05-06"),
    ],
)
def test_several_patterns_share_groups_and_arguments(skills, text, day):
    skills.write(TODOS)
    book = skills.load()
    assert book.diagnostics == ()
    assert match(book, text).arguments == {"day": day}
    assert len(book.patterns) == 3


def test_reply_shows_a_list_line_by_line(skills):
    skills.write(TODOS)
    found = match(skills.load(), "todos")
    items = [{"title": "call the bank", "due": "09:00"}, {"title": "rest", "due": None}]
    assert found.reply({"todos": items}) == "To do today:\n- call the bank (09:00)\n- rest"
    many = found.reply({"todos": [{"title": "x", "due": "y"}] * 25}).splitlines()
    assert (len(many), many[-1]) == (22, "… and 5 more")
    assert found.reply({"todos": []}) == "Nothing is due."


def test_near_miss_that_matches_is_an_error(skills):
    skills.write(TODOS.replace("what's new tomorrow", "what's due today"))
    book = skills.load()
    assert [found.code for found in book.diagnostics] == ["reflex-not-example"]
    assert book.reflexes == ()


def test_example_that_another_butler_takes_is_a_conflict(skills, book):
    skills.write(
        TODOS.replace('"todos"]', '"todos", "ping"]').replace("(?i)todos'", "(?i)todos|ping'")
    )
    other = skills.load()
    pairs = [("health", one) for one in book.reflexes] + [
        ("general", one) for one in other.reflexes
    ]
    (found,) = conflicts(pairs)
    assert (found.code, found.entry) == ("reflex-conflict", "todos")
    assert "'ping' goes to health" in found.message
    assert list(conflicts(pairs[::-1])) == []
