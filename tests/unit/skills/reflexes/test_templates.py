"""Templates support placeholders and nothing else."""

import pytest

from butlers.skills.reflexes.patterns import TemplateError, parse_template
from butlers.skills.reflexes.values import format_value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{a}", "<a>"),
        ("x {a} y {b.c.0} z", "x <a> y <b.c.0> z"),
        ("{ a }", "<a>"),
        ("{{a}}", "{a}"),
        ("{{{a}}}", "{<a>}"),
        ("", ""),
    ],
)
def test_rendering(text, expected):
    assert parse_template(text).render(lambda path: f"<{'.'.join(path)}>") == expected


def test_empty_value_removes_the_space_before_it():
    assert parse_template("80 {unit}.").render(lambda path: "") == "80."


@pytest.mark.parametrize(
    "text", ["{", "}", "{a", "a}", "{}", "{a!r}", "{a:>9}", "{a[0]}", "{a..b}", "{{}"]
)
def test_invalid_template_is_rejected(text):
    with pytest.raises(TemplateError):
        parse_template(text)


def test_a_value_is_never_read_as_a_template():
    assert parse_template("{a}").render(lambda path: "{a.__class__}") == "{a.__class__}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (80.0, "80"),
        (0.1 + 0.2, "0.3"),
        (1e20, "100000000000000000000"),
        (float("nan"), "?"),
        (10**500, "?"),
        (True, "yes"),
        (None, "?"),
        (object(), "?"),
        (["tea", "milk"], "tea, milk"),
        (["one"], "one"),
        (["She likes tea with a little milk.", "b"], "- She likes tea with a little milk.\n- b"),
        ({"amount": "12.50", "currency": "EUR"}, "12.50 EUR"),
        ({"a": 1, "b": None}, "a: 1"),
        (list(range(60)), ", ".join(map(str, range(50))) + ", … 10 more"),
    ],
)
def test_format_value(value, expected):
    assert format_value(value) == expected


def test_format_value_limits_depth():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert format_value(deep) == "…"
