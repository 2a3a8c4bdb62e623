"""``butlers init`` and ``butlers module new``: create the folder of a new butler or module."""

from __future__ import annotations

import keyword
import os
import re
import secrets
import shlex
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.output import print_line, print_message
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError, ConfigError, ConfigInvalid, InvalidArguments
from butlers.domain.queues import MESSENGER, SWITCHBOARD

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig

OWN, ROSTER = "butlers", "roster"
# 40100 to 40106 belong to the roster, including butlers that do not ship yet.
ROSTER_PORTS = range(40100, 40107)
FREE_PORTS = range(40107, 40200)
ROLES = (SWITCHBOARD, MESSENGER)
MODULE_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
PACKAGE_TEXT = '"""Modules of this butler, one package each."""\n'
EXISTS_HINT = "choose another name, or remove it first"

module_app = typer.Typer(
    help="Create modules, which add tools and tables to a butler.", no_args_is_help=True
)


class FolderExists(ButlersError):
    """A file or folder of that name exists."""

    code = "folder_exists"


class NotWritable(ButlersError):
    """The folder cannot be written."""

    code = "not_writable"


def init(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and '-'.")],
    port: Annotated[
        int | None,
        typer.Option(help="MCP port of the butler; default: the next free one of 401xx."),
    ] = None,
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Parent folder; a folder named roster gets the full layout."),
    ] = Path(OWN),
    example: Annotated[
        str | None,
        typer.Option("--from", help="Begin with an example: habits or journal."),
    ] = None,
) -> None:
    """Create the folder of a new butler."""
    _check_butler_name(name)
    folder = directory / name
    _refuse_existing(folder)
    settings = replace(
        Settings.from_environ(), port_offset=0
    )  # files hold ports without the offset
    others = _other_butlers(directory, settings)
    chosen = _choose_port(others) if port is None else _check_port(port)
    files = _butler_files(name, chosen, directory, example)
    _make_folder(folder, files, empty=("skills",), check=lambda draft: _load(draft, settings))
    _warn(name, chosen, others)
    command = f"butlers run --config {shlex.quote(str(folder))}"
    print_line(f"Created {folder} on port {chosen}. Start it with: {command}")


@module_app.callback()
def modules() -> None:
    """Create modules, which add tools and tables to a butler."""


@module_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and '_'.")],
    butler: Annotated[Path, typer.Option(help="Folder of the butler.")] = Path(),
) -> None:
    """Create a module with a test in a butler's folder, and add it to the butler.toml."""
    _check_module_name(name)
    config = _load(butler, Settings.from_environ())
    folder, test = butler / "modules" / name, butler / "tests" / f"test_{name}.py"
    for path in (folder, folder.with_suffix(".py"), test):
        _refuse_existing(path)
    _refuse_known_module(name, config)
    toml = _with_section(config.file, name)
    _write_module(folder, test, name, config.file, toml)
    print_line(f"Created {folder} and {test}, and added it to {butler / 'butler.toml'}.")
    print_line(f"Test it with: python -m pytest {shlex.quote(str(test))}")


def _check_butler_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from butlers.config.values import ButlerName

    try:
        TypeAdapter(ButlerName).validate_python(name)
    except ValidationError as error:
        raise InvalidArguments(
            error.errors()[0]["msg"], hint="for example: butlers init garden-diary"
        ) from None
    if name in ROLES:
        raise InvalidArguments(
            f"{name!r} is the name of a butler that every fleet has", hint="choose another name"
        )


def _check_port(port: int) -> int:
    if not 1 <= port <= 65535:
        raise InvalidArguments(
            f"{port} is not a port (1 to 65535)", hint="omit --port to use the next free one"
        )
    return port


def _choose_port(others: Mapping[Path, ButlerConfig]) -> int:
    taken = {config.port for config in others.values()}
    for port in FREE_PORTS:
        if port not in taken:
            return port
    raise InvalidArguments(
        f"all ports from {FREE_PORTS[0]} to {FREE_PORTS[-1]} are taken",
        hint="choose a port with --port",
    )


def _other_butlers(directory: Path, settings: Settings) -> dict[Path, ButlerConfig]:
    """Load the shipped butlers, those in butlers/ and those in the parent of the new folder."""
    from butlers.config.overrides import shipped_roster

    found: dict[Path, ButlerConfig] = {}
    for folder in (shipped_roster(), Path(OWN), directory):
        for butler in _butlers_in(folder):
            try:
                found[butler] = _load(butler, settings)
            except ConfigError as error:
                print_message("warning", f"left out of the port check: {error.message}")
    return found


def _butlers_in(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.glob("*/butler.toml")):
        if not file.parent.name.startswith("."):
            yield file.parent.resolve()


def _load(folder: Path, settings: Settings) -> ButlerConfig:
    from butlers.config.butler import load_butler_config

    return load_butler_config(folder, settings)


def _butler_files(
    name: str, port: int, directory: Path, example: str | None = None
) -> dict[str, str]:
    from butlers.cli import templates
    from butlers.cli.examples import example_files

    identifier = name.replace("-", "_")
    has_shared = (directory / "shared" / "AGENTS.md").is_file()
    texts = templates.ROSTER_BUTLER if directory.name == ROSTER else templates.OWN_BUTLER
    return _fill(
        texts if example is None else example_files(example),
        name=name,
        port=port,
        title=name.replace("-", " ").capitalize(),
        identifier=identifier,
        database=f"butler_{identifier}",
        class_name=_class_name(name),
        shared="@../shared/AGENTS.md\n\n" if has_shared else f"{templates.CONDUCT}\n",
    )


def _warn(name: str, port: int, others: Mapping[Path, ButlerConfig]) -> None:
    for folder, config in others.items():
        for what, mine, theirs in (("port", port, config.port), ("name", name, config.name)):
            if mine == theirs:
                print_message(
                    "warning",
                    f"{config.name} ({folder}) has the {what} {mine} as well;"
                    f" `butlers up` will not start both. Change one of them.",
                )
    if port in ROSTER_PORTS and port not in {config.port for config in others.values()}:
        print_message("warning", f"port {port} is reserved for a butler of the roster.")


def _check_module_name(name: str) -> None:
    if not MODULE_NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArguments(
            f"{name!r} is not a module name: use lower-case letters, digits and '_', a letter first,"
            " at most 30 characters, no Python keyword",
            hint="for example: butlers module new weather",
        )


def _refuse_known_module(name: str, config: ButlerConfig) -> None:
    from butlers.modules.registry import SHARED

    if name in config.modules:
        raise ConfigInvalid(
            f"it already has [modules.{name}]", path=config.file, hint="choose another name"
        )
    if (SHARED / name).is_dir():
        raise InvalidArguments(
            f"{name!r} is a module that ships with Butlers",
            hint=f"write [modules.{name}] into {config.file} to use it, or choose another name",
        )


def _with_section(file: Path, name: str) -> bytes:
    """Return the butler.toml with one more section. The existing bytes do not change."""
    import tomllib

    text = file.read_bytes()
    gap = b"" if text.endswith(b"\n") else b"\n"
    longer = text + gap + f"\n[modules.{name}]\n".encode()
    try:
        tomllib.loads(longer.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError:
        raise ConfigInvalid(
            "a section cannot be added at its end",
            path=file,
            hint="write `modules` as [modules.<name>] sections, not as one value",
        ) from None
    return longer


def _write_module(folder: Path, test: Path, name: str, file: Path, toml: bytes) -> None:
    from butlers.cli import templates
    from butlers.config.files import replace_file

    values = {"name": name, "class_name": _class_name(name)}
    _make_folder(folder, _fill(templates.MODULE, **values))
    try:
        package = folder.parent / "__init__.py"
        if not package.exists():
            package.write_text(PACKAGE_TEXT, encoding="utf-8")
        test.parent.mkdir(exist_ok=True)
        with test.open("x", encoding="utf-8") as opened:
            opened.write(Template(templates.MODULE_TEST).substitute(values))
        replace_file(file, toml, stat.S_IMODE(file.stat().st_mode))
    except OSError as error:
        shutil.rmtree(folder)
        test.unlink(missing_ok=True)
        raise ConfigInvalid(
            f"it cannot be changed: {error.strerror or error}",
            path=file,
            hint="nothing was changed; check your permissions",
        ) from error


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_"))


def _fill(texts: Mapping[str, str], **values: object) -> dict[str, str]:
    return {path: Template(text).substitute(values) for path, text in texts.items()}


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):  # also a dangling link
        raise FolderExists(f"{path} already exists; nothing was changed", hint=EXISTS_HINT)


def _make_folder(
    folder: Path,
    files: Mapping[str, str],
    *,
    empty: tuple[str, ...] = (),
    check: Callable[[Path], object] = lambda _: None,
) -> None:
    """Write a draft beside the folder, check it, then move it into place in one step."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
        try:
            _write_draft(draft, files, empty)
            check(draft)
            _move(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise NotWritable(
            f"{folder} cannot be created: {error.strerror or error}",
            hint="choose a folder that you can write to",
        ) from error


def _write_draft(draft: Path, files: Mapping[str, str], empty: tuple[str, ...]) -> None:
    draft.mkdir()
    for name in empty:
        (draft / name).mkdir()
    for name, text in files.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _move(draft: Path, folder: Path) -> None:
    """Claim the name with mkdir, so that only one of two simultaneous commands gets it."""
    try:
        folder.mkdir()
    except FileExistsError:
        raise FolderExists(
            f"{folder} already exists; nothing was changed", hint=EXISTS_HINT
        ) from None
    try:
        draft.rename(folder)  # replaces the empty folder in one step
    except OSError:
        folder.rmdir()
        raise
