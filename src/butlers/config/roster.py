"""Which butlers there are: the shipped roster's working copy, and the user's own folders."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from butlers.config.butler import ButlerConfig
from butlers.config.fleet import FLEET_FILE, FleetConfig
from butlers.config.known_butlers import may_be_there
from butlers.config.settings import Settings
from butlers.config.working_copy import refresh_working_copy, working_copy
from butlers.domain.errors import ConfigInvalid, ConfigMissing

__all__ = ["check_distinct", "find_butlers", "refresh_working_copy", "shipped_roster"]


def shipped_roster() -> Path:
    """The roster/ folder of this checkout."""
    return Path(__file__).resolve().parents[3] / "roster"


def find_butlers(
    fleet: FleetConfig,
    settings: Settings,
    *,
    shipped: Path,
    own: Path | None,
    refresh: bool = True,
) -> tuple[Path, ...]:
    """The config folders to run: the fleet's roster from its working copy, then the user's own.

    Without ``refresh`` a copy that is there stays as it is: whoever only looks changes nothing.
    """
    copy = working_copy(settings.home)
    if refresh or not copy.is_dir():
        copy = refresh_working_copy(shipped, settings.home)
    roster = _butlers_in(copy)
    mine = _butlers_in(own) if own else {}
    for name in fleet.roster:
        if name not in roster and name not in mine:
            raise _not_there(name, sorted({*roster, *mine}), settings)
    chosen = (roster[name] for name in fleet.roster if name in roster)
    return (*chosen, *mine.values())


def check_distinct(configs: Iterable[ButlerConfig]) -> None:
    """Refuse a fleet in which two butlers would get in each other's way."""
    butlers = tuple(configs)
    clashes = [
        *_clashes(butlers, "name", lambda butler: butler.name),
        *_clashes(butlers, "port", lambda butler: butler.port or None),
        *_clashes(butlers, "database", _database),
    ]
    if clashes:
        raise ConfigInvalid(
            "\n".join(clashes),
            hint="change one of each pair",
        )


def _butlers_in(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found = (path for path in sorted(folder.iterdir()) if may_be_there(path))
    return {path.name: path for path in found if not path.name.startswith(".")}


def _not_there(name: str, there: list[str], settings: Settings) -> ConfigMissing:
    near = get_close_matches(name, there, n=1)
    asked = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(there) or "none"
    return ConfigMissing(
        f"roster names {name!r}, but there is no such butler; there are: {listed}",
        path=settings.home / FLEET_FILE,
        key="roster",
        hint=f"{asked}correct the roster, or make one: `butlers init {name}`",
    )


def _database(butler: ButlerConfig) -> str:
    schema = f", schema {butler.db.schema}" if butler.db.schema else ""
    return f"{butler.db.name}{schema}"


def _clashes(
    butlers: tuple[ButlerConfig, ...], what: str, of: Callable[[ButlerConfig], Hashable]
) -> Iterator[str]:
    first: dict[Hashable, ButlerConfig] = {}
    for butler in butlers:
        value = of(butler)
        other = first.setdefault(value, butler)
        if value is not None and other is not butler:
            yield f"two butlers have the {what} {value}: {other.file} and {butler.file}"
