"""Fixtures: a skills folder with reflex files."""

from pathlib import Path

import pytest

from butlers.skills.reflexes import ReflexBook, load_reflexes

REALISTIC = r"""
version = 1

[[reflex]]
name = "log-weight"
pattern = '(?i)weight:?\s+(?P<value>[\d.,]+)\s*(?P<unit>kg|kilos?|lbs?|pounds?)?'
tool = "measurement_log"
reply = "Logged: {type} {value} {unit}."
examples = ["weight 80.4 kg", "Weight: 80,4"]

[reflex.groups]
value = "number"
unit = { type = "unit", default = "kg" }

[reflex.arguments]
type = "weight"
value = "{value}"
unit = "{unit}"

[[reflex]]
name = "last-weight"
pattern = '(?i)weight\s*\?'
tool = "measurement_latest"
reply = "{result.value} {result.unit}, {result.when.0}"
reply_empty = "No weight recorded yet."
arguments = { type = "weight", limit = 1, since = 2020-01-01 }
examples = ["weight?"]

[[reflex]]
name = "spend"
pattern = '(?i)spent\s+(?P<sum>\S+)\s+on\s+(?P<what>.+?)(?:\s+(?P<day>yesterday|today))?'
tool = "expense_log"
reply = "{sum} for {what}, {day}. Braces: {{}}"
examples = ["spent 12.50 on lunch", "spent $5 on tea yesterday"]
[reflex.groups]
sum = { type = "money", default_currency = "EUR" }
day = { type = "date", default = "today", prefer = "past" }
[reflex.arguments]
amount = "{sum.amount}"
money = "{sum}"
note = "{what} on {day}"
tags = ["{what}", "{{fixed}}"]
nested = { day = "{day}" }

[[reflex]]
name = "remind"
pattern = '(?i)remind me (?P<when>.+?) to (?P<what>.+?)(?: for (?P<length>\d+ ?\w+))?'
tool = "reminder_create"
reply = "I will remind you {when}: {what}. {length}"
examples = ["remind me in 10 minutes to stretch", "remind me tomorrow at 9 to run for 10 min"]
[reflex.groups]
when = "datetime"
length = "duration"
[reflex.arguments]
at = "{when}"
text = "{what}"
seconds = "{length}"

[[reflex]]
name = "ping"
pattern = '(?i)ping'
reply = "pong"
"""


class Skills:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, content: str | bytes, skill: str = "notes") -> Path:
        file = self.folder / skill / "reflex.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def load(self) -> ReflexBook:
        return load_reflexes(self.folder)


@pytest.fixture
def skills(tmp_path: Path) -> Skills:
    return Skills(tmp_path / "skills")


@pytest.fixture
def book(skills: Skills) -> ReflexBook:
    skills.write(REALISTIC)
    return skills.load()
