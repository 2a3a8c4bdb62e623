"""A person's changes to shipped butlers: ``$BUTLERS_HOME/butlers/<name>.toml``, merged over the butler.toml.

The working copy of the roster is replaced at each start, so a change in it would not last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from butlers.config.files import make_private_folder, replace_file
from butlers.domain.errors import ConfigInvalid, ConfigSyntaxError

_OVERRIDES = "butlers"
_COPY = "roster"


def shipped_roster() -> Path:
    """Return the roster/ folder of this checkout."""
    return Path(__file__).resolve().parents[3] / "roster"


def working_copy(home: Path) -> Path:
    return home / _COPY


def is_shipped(folder: Path, home: Path) -> bool:
    """Return whether the folder is that of a shipped butler, in the roster or in its working copy."""
    around = folder.resolve().parent
    return around in (working_copy(home).resolve(), shipped_roster())


def override_file(name: str, home: Path) -> Path:
    """Return the file for changes to a shipped butler. It need not exist."""
    return home / _OVERRIDES / f"{name}.toml"


def find_override(folder: Path, home: Path) -> Path | None:
    """Return the file with changes to the butler of this folder, if it is a shipped one and has any."""
    file = override_file(folder.name, home)
    return file if file.exists() and is_shipped(folder, home) else None


def check_overrides(home: Path, shipped: Collection[str]) -> None:
    """Raise ConfigInvalid for a file that would change nothing, because no shipped butler has its name."""
    for file in sorted((home / _OVERRIDES).glob("*.toml")):
        if file.stem not in shipped:
            near = get_close_matches(file.stem, shipped, n=1)
            asked = f"did you mean {near[0]}.toml? " if near else ""
            raise ConfigInvalid(
                f"no shipped butler is named {file.stem!r}",
                path=file,
                hint=f"{asked}files in this folder change shipped butlers "
                f"({', '.join(sorted(shipped))}); your own butlers have a butler.toml of their own",
            )


def set_table(
    name: str, home: Path, path: tuple[str, ...], values: Mapping[str, Any] | None
) -> None:
    """Set a table in the changes to a shipped butler, or remove the table or key if ``values`` is None.

    Keys of the table that are not given, and comments, stay as they are.
    """
    import tomlkit
    from tomlkit.exceptions import ParseError

    file = override_file(name, home)
    try:
        document = tomlkit.parse(file.read_text() if file.exists() else "")
    except ParseError as error:
        raise ConfigSyntaxError(str(error), path=file, hint="correct the file") from None
    *parents, last = path
    table: Any = document
    for key in parents:
        if key not in table:
            if values is None:
                return
            table[key] = tomlkit.table(is_super_table=True)
        table = table[key]
    if values is None:
        table.pop(last, None)
    else:
        table.setdefault(last, tomlkit.table()).update(values)
    make_private_folder(file.parent)
    replace_file(file, tomlkit.dumps(document).encode())
