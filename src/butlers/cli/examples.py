"""Examples for ``butlers init --from``: small butlers that work at once and show where things belong."""

from __future__ import annotations

from collections.abc import Mapping

from butlers.cli.templates import CONDUCT, OWN_BUTLER
from butlers.domain.errors import InvalidArguments

_NO_DESCRIPTION = (
    'description = ""  # one sentence: what it is for. The Switchboard chooses a butler by it.'
)

_HABITS_SKILL = """\
---
name: track-habits
description: Record that a habit was kept, and say how regularly. Use when the person says that they did
  something they want to do regularly, or asks about a streak.
version: 1.0.0
---

# Track habits

1. A habit is the key `habit:<name>` of the state, with the value `{"every": "day", "kept": ["2026-03-01"]}`.
2. To record it, read the key with `state_get`, add today's date once, and write it with `state_set` and the
   version that you read.
3. A habit that is not there yet: ask how often it is meant to happen, then create it.
4. Answer with the number of days in a row, no praise.
"""

_HABITS_CHECK = """\
---
name: habit-check
description: Remind of the habits that are still open today. Used by the schedule of the evening.
version: 1.0.0
---

# Habit check

1. Read the keys that begin with `habit:` with `state_list`.
2. If a daily habit has no entry for today, name all of them in one `notify` with intent "send".
3. If none is open, send nothing.
"""

_JOURNAL_SKILL = """\
---
name: keep-entry
description: Keep what the person tells about their day, and find it again. Use for "dear diary", "today I",
  or a question about a past day.
version: 1.0.0
---

# Keep an entry

1. The entries of a day are the key `day:<YYYY-MM-DD>` of the state, with a list of texts as the value.
2. To keep one, read the key with `state_get`, add the person's words unchanged, and write it with
   `state_set` and the version that you read. Answer "Kept."
3. To find one, list the keys with `state_list` and read the days in question. Quote, do not summarize.
"""

_JOURNAL_REVIEW = """\
---
name: week-in-review
description: Sum up the entries of the past seven days. Used by the schedule of Sunday evening.
version: 1.0.0
---

# The week in review

1. Read the entries of the past seven days with `state_get`.
2. If there are any, send three sentences with `notify`, intent "send": what happened, what recurred, and one
   question about the coming week.
3. Without entries, send nothing.
"""


def _config(description: str, schedule: str) -> str:
    text = OWN_BUTLER["butler.toml"].replace(_NO_DESCRIPTION, f'description = "{description}"')
    return f"{text}\n{schedule}"


EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "habits": {
        "butler.toml": _config(
            "Keeps track of habits, such as running or reading, and of how regularly they are kept.",
            '[[butler.schedule]]\nname = "habit-check"\ncron = "0 20 * * *"\n'
            'prompt = "Run the habit-check skill."\n',
        ),
        "CLAUDE.md": f"You are the $name butler: you keep track of habits.\n\n{CONDUCT}",
        "AGENTS.md": OWN_BUTLER["AGENTS.md"],
        "skills/track-habits/SKILL.md": _HABITS_SKILL,
        "skills/habit-check/SKILL.md": _HABITS_CHECK,
    },
    "journal": {
        "butler.toml": _config(
            "Keeps a journal: what the person tells about their day, and what happened on past days.",
            '[[butler.schedule]]\nname = "week-in-review"\ncron = "0 19 * * 0"\n'
            'prompt = "Run the week-in-review skill."\n',
        ),
        "CLAUDE.md": f"You are the $name butler: you keep the person's journal.\n\n{CONDUCT}",
        "AGENTS.md": OWN_BUTLER["AGENTS.md"],
        "skills/keep-entry/SKILL.md": _JOURNAL_SKILL,
        "skills/week-in-review/SKILL.md": _JOURNAL_REVIEW,
    },
}


def example_files(name: str) -> Mapping[str, str]:
    """Return the texts of an example, by file name."""
    if name not in EXAMPLES:
        known = ", ".join(EXAMPLES)
        raise InvalidArguments(f"there is no example {name!r}", hint=f"examples: {known}")
    return EXAMPLES[name]
