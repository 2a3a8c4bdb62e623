"""What belongs to the whole fleet, from $BUTLERS_HOME/fleet.toml."""

from __future__ import annotations

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

# How many Claude Code processes wait, booted, for a message to any butler. Each takes some 150 MB of memory.
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
