"""Which packs the butlers' configurations name, and naming one more in a file that a person wrote."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from butlers.config.butler import CONFIG_FILE, ButlerConfig, load_butler_config
from butlers.config.files import exclusive_lock, replace_file
from butlers.config.known_butlers import known_butlers, may_be_there
from butlers.config.roster import shipped_roster
from butlers.config.settings import Settings
from butlers.config.working_copy import working_copy
from butlers.domain.errors import ConfigError, ConfigInvalid

_TABLE = re.compile(r"(?m)^[ \t]*\[[ \t]*skills[ \t]*\][^\n]*\n?")
_NEXT_TABLE = re.compile(r"(?m)^[ \t]*\[")
_PACKS = re.compile(r"(?m)^[ \t]*packs[ \t]*=[ \t]*(?P<list>\[[^\[\]]*\])")
_HINT = "write it there by hand: [skills] packs = [...]"


def packs_named(config: ButlerConfig, settings: Settings) -> Mapping[str, Sequence[str]]:
    """What this butler's configuration names, and what those do that lie beside it, ship with us or have run
    with this home."""
    found = {config.name: config.skills.packs}
    for folder in _folders(config, settings):
        try:
            other = load_butler_config(folder, settings)
        except ConfigError:
            continue  # its own start tells
        found.setdefault(other.name, other.skills.packs)
    return found


def packs_written(folder: Path) -> tuple[str, tuple[str, ...]]:
    """The name and the packs in a butler.toml that is not ours to judge: it may need an environment that
    is not here. ConfigInvalid: nobody can tell what it names. One that is not there names nothing."""
    file = folder / CONFIG_FILE
    try:
        document = _parsed(file.read_bytes().decode("utf-8", "replace"))
    except (FileNotFoundError, NotADirectoryError):
        document = {}
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(f"it can not be read: {reason}", path=file) from error
    if document is None:
        raise ConfigInvalid("it is no TOML", path=file)
    butler, skills = (_table(document, key) for key in ("butler", "skills"))
    named = skills.get("packs", [])
    if not isinstance(named, list):
        raise ConfigInvalid("its packs are no list", path=file)
    return str(butler.get("name") or folder.name), tuple(str(pack) for pack in named)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _folders(config: ButlerConfig, settings: Settings) -> Iterator[Path]:
    for around in dict.fromkeys((config.directory.parent, working_copy(settings.home))):
        try:
            inside = sorted(around.iterdir())
        except OSError:
            continue
        yield from (folder for folder in inside if may_be_there(folder))
    with suppress(OSError):
        yield from known_butlers(settings.home)


def source_file(directory: Path, home: Path) -> Path:
    """The butler.toml that lasts: the working copy of a shipped one is renewed at each start."""
    if directory.resolve().is_relative_to(working_copy(home).resolve()):
        return shipped_roster() / directory.name / CONFIG_FILE
    return directory / CONFIG_FILE


def name_pack(file: Path, pack: str) -> bool:
    """Put ``id@version`` among the packs of a butler.toml, in the place of another version of it.

    All else stays as it was written. False: it was there already.
    """
    try:
        with exclusive_lock(file):
            return _name(file, pack)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"it can not be changed: {error}", path=file, hint=_HINT) from error


def _name(file: Path, pack: str) -> bool:
    text = file.read_bytes().decode("utf-8")
    before = _parsed(text)
    if before is None:
        raise ConfigInvalid("it is no TOML", path=file, hint=_HINT)
    packs = _wanted(before, pack)
    if packs == before.get("skills", {}).get("packs"):
        return False
    changed = _written(text, before.get("skills", {}).get("packs", []), packs)
    if _parsed(changed) != _with(before, packs):
        raise ConfigInvalid("its packs are written in an unusual way", path=file, hint=_HINT)
    replace_file(file, changed.encode(), stat.S_IMODE(file.stat().st_mode))
    return True


def _wanted(document: Mapping[str, Any], pack: str) -> list[str]:
    there = [str(one) for one in document.get("skills", {}).get("packs", [])]
    name = pack.partition("@")[0]
    replaced = [pack if one.partition("@")[0] == name else one for one in there]
    return replaced if pack in replaced else [*there, pack]


def _with(document: Mapping[str, Any], packs: list[str]) -> dict[str, Any]:
    return {**document, "skills": {**document.get("skills", {}), "packs": packs}}


def _written(text: str, there: list[str], packs: list[str]) -> str:
    whole = f"[{', '.join(json.dumps(pack) for pack in packs)}]"
    line = f"packs = {whole}"
    table = _TABLE.search(text)
    if table is None:
        return f"{text.rstrip(chr(10))}\n\n[skills]\n{line}\n"
    end = _NEXT_TABLE.search(text, table.end())
    body = text[table.end() : end.start() if end else len(text)]
    rest = text[end.start() :] if end else ""
    listed = _PACKS.search(body)
    if listed:
        edited = _edited(listed["list"], there, packs)
        fits = _parsed(f"packs = {edited}") == {"packs": packs}
        before, after = body[: listed.start("list")], body[listed.end("list") :]
        body = f"{before}{edited if fits else whole}{after}"
    else:
        body = f"{line}\n{body}"
    head = text[: table.end()]
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{body}{rest}"


def _edited(written: str, there: list[str], packs: list[str]) -> str:
    """The list as the person wrote it, with the one change in it."""
    for old, new in zip(there, packs, strict=False):
        if old != new:
            return written.replace(json.dumps(old), json.dumps(new))
    inner, new = written[:-1].rstrip(), json.dumps(packs[-1])
    comma = "" if inner.endswith(("[", ",")) else ","
    if "\n" in written:
        return f"{inner}{comma}\n    {new},\n]"
    return f"{inner}{comma}{'' if inner == '[' else ' '}{new}]"


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None
