"""Skill packs in butler configurations: list those that are named, and add one to a configuration file."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.config.folders import CONFIG_FILE, may_have_config
from butlers.config.overrides import override_file, shipped_roster, working_copy
from butlers.config.roster import known_butlers
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, ConfigInvalid

_HINT = "write it there by hand: [skills] packs = [...]"


def packs_named(config: ButlerConfig, settings: Settings) -> Mapping[str, Sequence[str]]:
    """Return the packs of this butler and of the butlers beside it, in the roster, or known to this home."""
    found = {config.name: config.skills.packs}
    for folder in _folders(config, settings):
        try:
            other = load_butler_config(folder, settings)
        except ConfigError:
            continue  # reported when that butler starts
        found.setdefault(other.name, other.skills.packs)
    return found


def packs_written(folder: Path, override: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the name and the packs of a butler.toml without validating it: its environment variables
    may be unset here. A missing file names no packs; an unreadable one raises ConfigInvalid.

    The packs of an override are returned with the others, although they replace them: none of them is unused
    for certain."""
    name, packs = _packs_in(folder / CONFIG_FILE)
    if override is not None:
        packs += _packs_in(override)[1]
    return name or folder.name, packs


def _packs_in(file: Path) -> tuple[str | None, tuple[str, ...]]:
    try:
        document = _parsed(file.read_bytes().decode("utf-8", "replace"))
    except (FileNotFoundError, NotADirectoryError):
        document = {}
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(f"it cannot be read: {reason}", path=file) from error
    if document is None:
        raise ConfigInvalid("it is not valid TOML", path=file)
    butler, skills = (_table(document, key) for key in ("butler", "skills"))
    named = skills.get("packs", [])
    if not isinstance(named, list):
        raise ConfigInvalid("its packs are not a list", path=file)
    name = butler.get("name")
    return str(name) if name else None, tuple(str(pack) for pack in named)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _folders(config: ButlerConfig, settings: Settings) -> Iterator[Path]:
    for around in dict.fromkeys((config.directory.parent, working_copy(settings.home))):
        try:
            inside = sorted(around.iterdir())
        except OSError:
            continue
        yield from (folder for folder in inside if may_have_config(folder))
    with suppress(OSError):
        yield from known_butlers(settings.home)


def shipped_folder(directory: Path, home: Path) -> Path:
    """Return the folder that a working copy was made of, or the given folder."""
    if directory.resolve().is_relative_to(working_copy(home).resolve()):
        return shipped_roster() / directory.name
    return directory


def source_file(directory: Path, home: Path) -> Path:
    """Return the file to edit. For a working copy that is the override: copies are replaced at each start."""
    if directory.resolve().is_relative_to(working_copy(home).resolve()):
        return override_file(directory.name, home)
    return directory / CONFIG_FILE


def name_pack(file: Path, pack: str) -> bool:
    """Add ``id@version`` to the packs of a butler.toml, in place of another version of the pack.

    Comments and order stay as they are. Return False if it was there already. An override that names no
    packs begins with those of the shipped butler, because its list replaces theirs.
    """
    try:
        make_private_folder(file.parent)
        with exclusive_lock(file):
            return _name(file, pack)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"it cannot be changed: {error}", path=file, hint=_HINT) from error


def _name(file: Path, pack: str) -> bool:
    import tomlkit  # only needed here, and slow to import
    from tomlkit.exceptions import TOMLKitError

    text = file.read_bytes().decode("utf-8")
    try:
        document = tomlkit.parse(text)
        skills = document.get("skills")
        if skills is None:
            document.add(tomlkit.nl())
            document["skills"] = skills = tomlkit.table()
        packs = skills.setdefault("packs", tomlkit.item(_inherited(file)))
        if pack in packs:
            return False
        name = pack.partition("@")[0]
        named = [position for position, one in enumerate(packs) if one.partition("@")[0] == name]
        for position in named:
            packs[position] = pack
        if not named:
            packs.append(pack)
    except (TOMLKitError, AttributeError, TypeError) as error:  # not TOML, or packs is not a list
        raise ConfigInvalid("its packs cannot be edited", path=file, hint=_HINT) from error
    replace_file(file, tomlkit.dumps(document).encode(), stat.S_IMODE(file.stat().st_mode))
    return True


def _inherited(file: Path) -> list[str]:
    if file.name == CONFIG_FILE:
        return []
    return list(packs_written(shipped_roster() / file.stem)[1])


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None
