"""Configuration of the whole fleet: $BUTLERS_HOME/fleet.toml."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from butlers.config.document import Document, refuse
from butlers.config.files import make_private_folder, replace_file
from butlers.config.folders import DEFAULT_ROSTER, FLEET_FILE
from butlers.config.settings import Settings
from butlers.config.values import ButlerName, ConfigTable, Count, Integer, Timezone
from butlers.domain.errors import ConfigInvalid

_FIRST_TEXT = """\
# Settings of the whole fleet, written by the first start. Edit them as you like; a change takes effect with
# the next `butlers up`. Your changes to a shipped butler belong into butlers/NAME.toml beside this file.

# Your time zone, an IANA name such as "Europe/Berlin". A butler.toml may set another one.
timezone = "UTC"

# The butlers of the shipped roster that run. No fleet can do without switchboard and messenger. Your own
# folders under butlers/ always run.
roster = ["switchboard", "messenger", "general", "relationship", "health", "finance", "travel"]

# "roles": each butler has its own database role, which cannot read the data of other butlers.
# "none":  no isolation, for a database server on which roles cannot be created.
isolation = "roles"

# The key broker: sessions reach their model through a proxy on this machine, which adds the key of the
# provider, counts tokens and ends a session at its limit. No session has a key.
# With false, each session has the key itself in its environment, and budgets are counted when it has ended.
broker = true

# The dashboard at port 40200, which only this machine can reach. `butlers dashboard` opens it.
dashboard = true

# Public names of the dashboard, if a reverse proxy on this machine serves it over HTTPS. Read the page
# "Public name" under Settings first: whoever signs in there controls everything.
# dashboard_hosts = ["butlers.example.org"]

# "required": where this system cannot make a sandbox, scripts of skills from elsewhere do not run.
# "optional": they run without one, and can do whatever your account can.
sandbox = "required"

# Number of CLI sessions that run at once in the whole fleet. Default: as many as fit in half of the memory.
# max_sessions = 4

# Daily budget of all butlers together, in addition to each butler's own [butler.budget]. daily_usd cannot
# limit a model whose price is unknown (prices.toml): daily_tokens limits it, or, if that is not set, 50,000
# tokens per dollar, as on an expensive model.
# daily_usd = 5.00
# daily_tokens = 2_000_000

# Number of started Claude Code or Codex processes that wait for a message to any butler. While they wait,
# they have no data of a butler. Each takes about 150 MB of memory (Claude Code) or 90 MB (Codex).
# warm_pool = 0
"""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise refuse(f"{name!r} is listed twice", at=(index,))
    return names


HostName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


class FleetConfig(ConfigTable):
    timezone: Timezone = "UTC"
    """Your time zone, an IANA name. A butler may have another one."""
    roster: Annotated[tuple[ButlerName, ...], Field(min_length=1), AfterValidator(_distinct)] = (
        DEFAULT_ROSTER
    )
    """The shipped butlers that run. `switchboard` and `messenger` must be among all butlers that run."""
    isolation: Literal["roles", "none"] = "roles"
    """`roles`: each butler has a database role that cannot read the data of other butlers. `none`: no
    isolation, for a server on which roles cannot be created."""
    sandbox: Literal["required", "optional"] = "required"
    """`required`: where the system cannot make a sandbox, scripts of skills from elsewhere do not run.
    `optional`: they run without one, with all rights of the account."""
    max_sessions: Count | None = None
    """CLI sessions that run at once in the whole fleet. Default: as many as fit in half of the memory."""
    warm_pool: Annotated[Integer, Field(ge=0)] = 0
    """Started Claude Code or Codex processes that wait for a message to any butler."""
    broker: bool = True
    """Sessions reach their model through the key broker, which holds the key, counts tokens and enforces
    limits. `false`: sessions get the key itself and have no limit while they run."""
    debug_broker: bool = False
    """The key broker keeps the prompts and answers of all sessions in a file of the home, broker/debug.jsonl,
    redacted and bounded. For the search of a fault only."""
    dashboard: bool = True
    """`butlers up` also serves the dashboard, at port 40200 (plus BUTLERS_PORT_OFFSET) of this machine."""
    dashboard_hosts: tuple[HostName, ...] = ()
    """Public names of the dashboard, served over HTTPS by a reverse proxy on this machine. Default: none; it
    answers to loopback names only. Whoever reaches such a name and signs in controls everything."""
    daily_usd: Annotated[Decimal, Field(ge=0)] | None = None
    """Dollars that all butlers together may spend per day. Default: no limit."""
    daily_tokens: Annotated[Integer, Field(ge=0)] | None = None
    """Tokens that all butlers together may use per day. Default: no limit."""


def load_fleet_config(settings: Settings) -> FleetConfig:
    """Return the fleet's configuration. The first call writes the file with its defaults."""
    path = settings.home / FLEET_FILE
    if not path.exists():
        _write_first(path)
    document = Document.read(path, settings.environ, missing_hint="`butlers up` writes it")
    return document.validate(FleetConfig)


def sandbox_required(settings: Settings) -> bool:
    """Return whether scripts from elsewhere need a sandbox, also before the first start."""
    known = (settings.home / FLEET_FILE).exists()
    return not known or load_fleet_config(settings).sandbox == "required"


def _write_first(path: Path) -> None:
    try:
        make_private_folder(path.parent)
        replace_file(path, _FIRST_TEXT.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(
            f"it cannot be written: {reason}",
            path=path,
            hint="set BUTLERS_HOME to a writable folder",
        ) from error
