"""What belongs to the whole fleet, from $BUTLERS_HOME/fleet.toml."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from butlers.config.document import Document
from butlers.config.files import make_private_folder, replace_file
from butlers.config.problems import refuse
from butlers.config.settings import Settings
from butlers.config.values import ButlerName, Count, Integer, Section, Timezone
from butlers.domain.errors import ConfigInvalid

FLEET_FILE = "fleet.toml"

_FIRST_TEXT = """\
# What belongs to the whole fleet. Written by the first start; yours to change.
# A change counts from the next `butlers up`. What belongs to one butler is in its butler.toml.

# Your time zone, an IANA name such as "Europe/Berlin". A butler may name another in its butler.toml.
timezone = "UTC"

# The butlers of the shipped roster that run. Your own folders under butlers/ always run.
roster = ["switchboard", "messenger", "general", "health"]

# "roles": each butler has a database role of its own and is refused everywhere else.
# "none":  start without these walls, on a database server where we may not create roles.
isolation = "roles"

# How many sessions on a CLI run at once in the whole fleet. Without it: what half of the memory holds.
# max_sessions = 4

# What all butlers together may spend in a day, beside what each butler's own [butler.budget] says. A model
# whose price is unknown (prices.toml) can not be bound by dollars: then daily_tokens binds it, and without
# that as many tokens as the dollars would buy on a dear model, 50,000 for each.
# daily_usd = 5.00
# daily_tokens = 2_000_000

# How many processes of Claude Code or Codex wait, booted, for a message to any butler. They know no butler
# while they wait. Each takes some 150 MB of memory (Claude Code) or 90 MB (Codex).
# warm_pool = 0
"""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise refuse(f"{name!r} is named twice", at=(index,))
    return names


class FleetConfig(Section):
    timezone: Timezone = "UTC"
    roster: Annotated[tuple[ButlerName, ...], Field(min_length=1), AfterValidator(_distinct)] = (
        "switchboard",
        "messenger",
        "general",
        "health",
    )
    isolation: Literal["roles", "none"] = "roles"
    max_sessions: Count | None = None
    warm_pool: Annotated[Integer, Field(ge=0)] = 0
    daily_usd: Annotated[Decimal, Field(ge=0)] | None = None
    daily_tokens: Annotated[Integer, Field(ge=0)] | None = None


def load_fleet_config(settings: Settings) -> FleetConfig:
    """The fleet's configuration; the first call writes the file with its defaults explained."""
    path = settings.home / FLEET_FILE
    if not path.exists():
        _write_first(path)
    document = Document.read(path, settings.environ, missing_hint="`butlers up` writes it")
    return document.validate(FleetConfig)


def _write_first(path: Path) -> None:
    try:
        make_private_folder(path.parent)
        replace_file(path, _FIRST_TEXT.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(
            f"it can not be written: {reason}",
            path=path,
            hint="set BUTLERS_HOME to a folder that you may write to",
        ) from error
