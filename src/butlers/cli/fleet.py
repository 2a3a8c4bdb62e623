"""The butlers of this home: their configurations, and calls of their tools as the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import typer

from butlers.cli.output import print_line, print_message
from butlers.config.folders import butlers_in, listed_roster
from butlers.config.overrides import working_copy
from butlers.config.settings import Settings
from butlers.domain.caller import CallerKind
from butlers.domain.errors import ButlersError, NotFound, PeerUnavailable
from butlers.domain.queues import SWITCHBOARD
from butlers.wire import directory
from butlers.wire.answers import GatheredAnswers, gather_answers
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetCredential, FleetKey

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.config.roster import ReplacedEdit

T = TypeVar("T")
Record = dict[str, Any]

OWNER = "owner"
OWN_BUTLERS = Path("butlers")
STATUS_HINT = "`butlers status` shows the health of each butler"
UUID_LENGTH = 36
LONGEST_LIST = 500  # records that a butler returns at most


def load_roster(
    settings: Settings, *, refresh: bool = True
) -> tuple[FleetConfig, list[ButlerConfig]]:
    """Load the configurations of the fleet's roster and of the person's own butlers."""
    fleet, folders = find_roster(settings, refresh=refresh)
    return fleet, [load_butler(folder, settings, fleet) for folder in folders]


@dataclass(frozen=True, slots=True)
class ButlerSummary:
    """A butler of this home, as `butlers list` shows it."""

    name: str
    port: int
    description: str
    directory: str


def summarize_roster(settings: Settings) -> list[ButlerSummary]:
    """Return the butlers of this home: as they announced themselves, if all run, else from their files.

    Importing what reads the files takes longer than everything else that a command does.
    """
    announced = _announced_roster(settings)
    if announced is not None:
        return announced
    return [
        ButlerSummary(one.name, one.port, one.description, str(one.directory))
        for one in load_roster(settings, refresh=False)[1]
    ]


def _announced_roster(settings: Settings) -> list[ButlerSummary] | None:
    """Return the summaries of all butlers; None if one of them has not announced itself."""
    listed = listed_roster(settings.home)
    if listed is None:
        return None
    shipped = butlers_in(working_copy(settings.home))
    folders = [shipped.get(name) for name in listed] + list(butlers_in(OWN_BUTLERS).values())
    entries = {entry.directory: entry for entry in directory.entries(settings.home).values()}
    found = [entries.get(str(folder.absolute())) if folder else None for folder in folders]
    return (
        [
            ButlerSummary(one.name, urlsplit(one.url).port or 0, one.description, one.directory)
            for one in found
            if one is not None
        ]
        if all(found)
        else None
    )


def find_roster(
    settings: Settings, *, refresh: bool = True
) -> tuple[FleetConfig, tuple[Path, ...]]:
    """Find the folders of all butlers without reading their configurations."""
    from butlers.config.fleet import load_fleet_config
    from butlers.config.overrides import shipped_roster
    from butlers.config.roster import find_butlers

    fleet = load_fleet_config(settings)
    own = OWN_BUTLERS if OWN_BUTLERS.is_dir() else None
    found = find_butlers(
        fleet, settings, shipped=shipped_roster(), own=own, refresh=refresh, on_edit=_print_edit
    )
    return fleet, found


def _print_edit(edit: ReplacedEdit) -> None:
    print_message("warning", str(edit))


def load_butler(folder: Path, settings: Settings, fleet: FleetConfig) -> ButlerConfig:
    from butlers.config.butler import load_butler_config

    return load_butler_config(folder, settings, default_timezone=fleet.timezone)


def check_roles(configs: Iterable[ButlerConfig], settings: Settings) -> None:
    """Raise ConfigInvalid for a table of a channel that is wrong.

    Only for butlers with such a table: importing the roles takes as long as starting the database.
    """
    for config in configs:
        if config.channels or config.connectors:
            from butlers.daemon.roles import roles_of

            for role in roles_of(config):
                role.validate_config(config, settings.home)


def running_butlers(settings: Settings) -> list[str]:
    names = sorted(directory.entries(settings.home))
    if not names:
        raise NotFound("no butler is running", hint="`make up` starts the fleet")
    return names


async def known_butlers(settings: Settings) -> list[str]:
    """Return the running butlers and those that the Switchboard knows.

    A registered butler that does not run holds records too; asking it shows that they are missing.
    """
    running = running_butlers(settings)
    if SWITCHBOARD not in running:
        return running
    try:
        registered = (await call(SWITCHBOARD, "registry_list"))["butlers"]
    except ButlersError:
        return running  # the caller asks the Switchboard again and reports its failure
    return sorted({*running, *(butler["name"] for butler in registered)})


def owner_client(settings: Settings, butler: str) -> McpClient:
    entry = directory.find(settings.home, butler)
    key = FleetKey.load(settings.home)
    return McpClient(butler, entry.url, FleetCredential(key, CallerKind.OWNER, OWNER, butler))


async def call(
    butler: str,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
) -> Any:
    """Call one tool of a butler as the owner."""
    async with owner_client(Settings.from_environ(), butler) as client:
        return await client.call(tool, arguments, timeout_s=timeout_s)


def call_tool(butler: str, tool: str, **arguments: Any) -> Any:
    """Call one tool as the owner, from a command that has nothing else to wait for."""
    return asyncio.run(call(butler, tool, arguments))


@dataclass(frozen=True, slots=True)
class Answers(GatheredAnswers[T]):
    def exit_on_failures(self) -> None:
        """Report the butlers that did not answer and exit with 1.

        Called after the other answers are printed: a list with a missing part is not a success.
        """
        for name, error in self.failed.items():
            print_line(f"{name} did not answer: {error}", err=True)
        if self.failed:
            print_message("hint", STATUS_HINT)
            raise typer.Exit(1)


async def ask_all(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Ask every butler at once. A failure is kept beside the answers; only failures are an error."""
    answers = await _gather(names, ask)
    if not answers.found:
        reasons = "; ".join(f"{name}: {error}" for name, error in answers.failed.items())
        raise PeerUnavailable(f"no butler answered ({reasons})", hint=STATUS_HINT)
    return answers


async def list_records(
    names: Sequence[str],
    tool: str,
    arguments: dict[str, Any],
    key: str,
    *,
    timeout_s: float | None = None,
) -> Answers[list[Record]]:
    """Call a listing tool of every butler, and add the butler's name to each record."""

    async def ask(name: str) -> list[Record]:
        answer = await call(name, tool, arguments, timeout_s=timeout_s)
        return [{"butler": name, **record} for record in answer[key]]

    return await ask_all(names, ask)


def newest_first(answers: Answers[list[Record]], by: str) -> list[Record]:
    records = (record for records in answers.found.values() for record in records)
    return sorted(records, key=lambda record: str(record[by]), reverse=True)


async def call_holder(
    names: Sequence[str],
    tool: str,
    arguments: dict[str, Any],
    what: str,
    hint: str,
    *,
    timeout_s: float | None = None,
) -> tuple[str, Any]:
    """Call the tool on every butler, and return the one that holds the record and its answer."""
    answers = await _gather(names, lambda name: call(name, tool, arguments, timeout_s=timeout_s))
    for name, answer in answers.found.items():
        return name, answer
    silent = [name for name, error in answers.failed.items() if not isinstance(error, NotFound)]
    if silent:
        raise PeerUnavailable(
            f"{what} is not with the butlers that answered; {', '.join(silent)} did not answer",
            hint=STATUS_HINT,
        )
    raise NotFound(f"no butler has {what}", hint=hint)


async def _gather(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    answers = await gather_answers(names, ask)
    return Answers(answers.found, answers.failed)


def full_id(text: str) -> str | None:
    """Return the normalized id, or None if the text is not a complete id."""
    try:
        return str(UUID(text))
    except ValueError:
        return None


def find_by_prefix(prefix: str, ids: Sequence[str], what: str, command: str) -> str:
    """Return the only id that starts with the prefix. A full id is accepted without a match."""
    matches = [known for known in ids if known.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    if not matches and len(prefix) == UUID_LENGTH:
        return prefix
    raise NotFound(
        f"{len(matches) or 'no'} {what} start with {prefix!r}", hint=f"`{command}` lists them"
    )
