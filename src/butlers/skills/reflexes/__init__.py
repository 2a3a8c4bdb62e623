"""Reflexes: turn a whole message into one tool call and a reply, without a model, in linear time.

A butler's skill may carry a ``reflex.toml`` next to its ``SKILL.md``::

    version = 1

    [[reflex]]
    name = "log-weight"
    pattern = '(?i)weight:?\\s+(?P<value>\\d+(?:[.,]\\d+)?)\\s*(?P<unit>kg|lbs?|pounds?)?'
    tool = "measurement_log"                        # leave out to answer without a tool
    reply = "Logged: {type} {value} {unit}."
    reply_empty = "Nothing recorded yet."           # when the tool's result is empty
    examples = ["weight 80.4 kg", "Weight: 80,4"]   # checked when the file is loaded
    not_examples = ["weightlifting at 6"]           # near misses that must not match

    [reflex.groups]                                 # type of each named group; default text
    value = "number"
    unit = { type = "unit", default = "kg" }

    [reflex.arguments]                              # constants, or "{group}" for a converted value
    type = "weight"
    value = "{value}"
    unit = "{unit}"

**Several patterns.** ``patterns = ["…", "…"]`` instead of ``pattern``: English and German, for example.
The first that matches and converts decides. They share groups, arguments and reply; a group that the
matching pattern lacks has its default.

**Lists.** ``list = "todos"`` names a list in the tool's result and ``line = "- {title} ({due})"`` shows one
of its items; ``{list}`` in the reply is all of them, one a line.

**Matching.** The pattern (RE2 syntax) must match the whole message, stripped and in Unicode form
NFC; a message over 1,000 characters matches nothing. Skills are tried in name order, reflexes in
file order, the first match wins. A group that cannot be converted means "no match".

**Groups.** A type, or a table with ``type``, ``default`` (text as a person would write it),
``required = true``, ``default_currency`` (money) and ``prefer = "future" | "past"`` (dates and
times: which Monday is meant; default "future").

=========  =====================================  ====================================
type       input                                  value for the tool; its parts
=========  =====================================  ====================================
text       anything                               the text
number     80.4  80,4  1,234.5  1.234,5  1 234,5  a JSON number; decimal text where a
                                                  JSON number would not be exact
integer    10000  10,000  10.000  10 000          an integer
unit       lbs, Pounds, kilos, mmhg               lb, kg, mmHg: one spelling for each
money      12.50  €12,50  12 dollars  CHF 3       {amount = "12.50", currency = "EUR"};
                                                  amount, currency
date       today  friday  3 May  3.5.2026  ISO    "2026-05-03"; text
time       8am  08:30  8:30 pm  noon              "08:00:00+02:00"; local, datetime
datetime   tomorrow at 9  in 10 minutes  8am      "2026-05-03T09:00:00+02:00";
                                                  date, local, text
when       friday  friday at 9                    as date, or as datetime with a time of
                                                  day; date, text
duration   10 minutes  1h30  half an hour         seconds, an integer; text
=========  =====================================  ====================================

Dates, times and durations are read in German too: "morgen um 9", "am Freitag", "in 10 Minuten".

**Templates.** ``{group}``, ``{group.part}``, in a reply also ``{argument}`` and
``{result.path.to.value}``; ``{{`` and ``}}`` are braces. A reply shows numbers and dates in a
readable form and ``?`` for a missing result. An argument that is exactly ``"{group}"`` keeps the
value's type, and is omitted when the group did not match.
"""

from butlers.skills.reflexes.book import OwnerReflexes, ReflexBook, load_reflexes
from butlers.skills.reflexes.examples import conflicts
from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.reflex import Reflex, ReflexMatch

__all__ = [
    "CompiledTrigger",
    "OwnerReflexes",
    "Reflex",
    "ReflexBook",
    "ReflexMatch",
    "compile_trigger",
    "conflicts",
    "load_reflexes",
]
