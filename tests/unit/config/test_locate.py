from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.config.locate import KeyPath, dotted, locate

TEXT = '''\
# a comment [not.a.table]
title = "x"
[butler]   # trailing
name = "a" # name = "b"
a.b.c = 1
"quoted key" = 2
'literal.key' = 3
"esc\\u0061ped" = 4
text = """
[fake]
name = "no"
\\""" still inside
"""
raw = \'\'\'
[[fake.two]]
\'\'\'
list = [ # [x]
  "]",
  { k = "}" },
]
after = true
inline = { one = 1, two = { three = 3 } }

[butler.db]
schema = "s"

[[butler.schedule]]
name = "first"
[butler.schedule.job_args]
x = 1

[[ butler . "schedule" ]]
name = "second"
[[butler.schedule.deep]]
y = 1
[[butler.schedule.deep]]
y = 2
[late.child]
z = 1
[late]
w = 1
end = """two quotes at the end"""""
last = 1'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("butler",), 3),
        (("butler", "name"), 4),
        (("butler", "a"), 5),
        (("butler", "a", "b", "c"), 5),
        (("butler", "quoted key"), 6),
        (("butler", "literal.key"), 7),
        (("butler", "escaped"), 8),
        (("butler", "text"), 9),
        (("butler", "raw"), 14),
        (("butler", "list"), 17),
        (("butler", "list", 1, "k"), 17),
        (("butler", "after"), 21),
        (("butler", "inline", "two", "three"), 22),
        (("butler", "db", "schema"), 25),
        (("butler", "schedule"), 27),
        (("butler", "schedule", 0), 27),
        (("butler", "schedule", 0, "name"), 28),
        (("butler", "schedule", 0, "job_args", "x"), 30),
        (("butler", "schedule", 1), 32),
        (("butler", "schedule", 1, "name"), 33),
        (("butler", "schedule", 1, "deep", 0, "y"), 35),
        (("butler", "schedule", 1, "deep", 1, "y"), 37),
        (("late", "child"), 38),
        (("late",), 40),
        (("last",), None),
        (("late", "last"), 43),
        (("late", "missing"), 40),
        (("butler", "schedule", 1, "cron"), 32),
        (("fake",), None),
        ((), None),
    ],
)
def test_line_of_each_key(path: KeyPath, line: int | None) -> None:
    tomllib.loads(TEXT)
    assert locate(TEXT).line(path) == line


def test_windows_line_ends() -> None:
    assert locate("[a]\r\nb = 1\r\n\r\nc = 2\r\n").line(("a", "c")) == 4


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "a = 1"])
def test_short_texts(text: str) -> None:
    assert locate(text).line(("a",)) == (1 if text == "a = 1" else None)


def test_dotted() -> None:
    assert dotted(("butler", "schedule", 1, "cron")) == "butler.schedule[1].cron"
    assert dotted(("modules", "a b")) == 'modules."a b"'


_KEYS = st.text("abcde", min_size=1, max_size=4)
_VALUES = st.sampled_from(
    ["1", '"[x]"', "'#'", '"""\n[t]\nk = 1\n"""', "'''\n''' ", "[\n 1, # ]\n]", "{ p = '}' }"]
)


@given(st.dictionaries(_KEYS, st.dictionaries(_KEYS, _VALUES, max_size=4), max_size=5))
def test_every_key_is_found_on_the_line_it_was_written_on(tables: dict[str, Any]) -> None:
    lines: list[str] = []
    expected: dict[KeyPath, int] = {}
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        expected[(table,)] = len(lines)
        for key, value in keys.items():
            expected[(table, key)] = len(lines) + 1
            lines.extend(f"{key} = {value}".split("\n"))
    text = "\n".join(lines)
    tomllib.loads(text)
    found = locate(text)
    assert {path: found.line(path) for path in expected} == expected
