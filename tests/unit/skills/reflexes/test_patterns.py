"""Patterns match whole messages in linear time."""

import pytest

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes import compile_trigger


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        ("ping", "ping", {}),
        ("ping", "  ping\n", {}),
        ("ping", "ping pong", None),
        ("ping", "please ping", None),
        ("(?i)ping", "PING", {}),
        (r"(?P<a>\d+)(?P<b>x)?", "12", {"a": "12", "b": None}),
        ("(?P<b>x)?(?P<a>y)", "y", {"b": None, "a": "y"}),
        ("caf\u00e9", "cafe\u0301", {}),
        ("cafe\u0301", "caf\u00e9", {}),
        (r"\d", "\u0663", None),
        ("a+", "a" * 1000, {}),
        ("a+", "a" * 1001, None),
        ("a+", " " * 50 + "a" * 1000, {}),
        ("(?s).*", "a\0b", None),
        ("(?s).*", "\ud800", None),
        (".*", "two\nlines", None),
    ],
)
def test_a_trigger_matches_the_whole_message_or_nothing(pattern, text, groups):
    trigger = compile_trigger(pattern)
    assert trigger.match(text) == groups
    assert trigger.matches(text) is (groups is not None)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+", "(?:a?){300}a{300}", "(.*)*(.*)*x"])
def test_catastrophic_backtracking_patterns_finish(pattern):
    trigger = compile_trigger(pattern)
    trigger.matches("a" * 1000)
    assert not trigger.matches("a" * 999 + "!")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing )"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(a{1000}){1000}", "invalid repetition size"),
        ("(?:[\\pL]{100}){10}", "too large"),
        ("(?P<a>x)|(?P<a>y)", "'a' is used twice"),
        ("\ud800", "not valid Unicode"),
        ("a" * 4001, "at most 4,000 characters"),
    ],
)
def test_bad_pattern_is_rejected_with_the_reason(pattern, message, capfd):
    with pytest.raises(InvalidArguments) as caught:
        compile_trigger(pattern)
    assert message in caught.value.message
    assert capfd.readouterr().err == ""
