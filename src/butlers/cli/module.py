"""``butlers module``: making modules."""

from __future__ import annotations

import keyword
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid, InvalidArguments

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig

app = typer.Typer(help="Modules: tools and tables that a butler can have.", no_args_is_help=True)

NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
PACKAGE_TEXT = '"""This butler\'s own modules, one package each."""\n'


@app.callback()
def modules() -> None:
    """Modules: tools and tables that a butler can have."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and '_'.")],
    butler: Annotated[Path, typer.Option(help="The butler's folder.")] = Path(),
) -> None:
    """Make a module with its test in a butler's folder, and name it in its butler.toml."""
    from butlers.cli.scaffold import refuse_existing
    from butlers.config.butler import load_butler_config

    _check_name(name)
    config = load_butler_config(butler, Settings.from_environ())
    folder, test = butler / "modules" / name, butler / "tests" / f"test_{name}.py"
    for path in (folder, folder.with_suffix(".py"), test):
        refuse_existing(path, "choose another name, or remove it first")
    _refuse_known(name, config)
    toml = _with_section(config.file, name)
    _write(folder, test, name, config.file, toml)
    typer.echo(f"Made {folder} and {test}, and named it in {butler / 'butler.toml'}.")
    typer.echo(f"Test it with: python -m pytest {test}")


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArguments(
            f"{name!r} is not a module's name: lower-case letters, digits and '_', a letter first,"
            " at most 30, no word of Python's",
            hint="for example: butlers module new weather",
        )


def _refuse_known(name: str, config: ButlerConfig) -> None:
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
    """The butler.toml with one more section; what is there stays byte for byte."""
    import tomllib

    text = file.read_bytes()
    gap = b"" if text.endswith(b"\n") else b"\n"
    longer = text + gap + f"\n[modules.{name}]\n".encode()
    try:
        tomllib.loads(longer.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError:
        raise ConfigInvalid(
            "a section can not be added at its end",
            path=file,
            hint="write `modules` as [modules.<name>] sections, not as one value",
        ) from None
    return longer


def _write(folder: Path, test: Path, name: str, file: Path, toml: bytes) -> None:
    from butlers.cli.scaffold import class_name, fill, make_folder
    from butlers.cli.templates import module as templates
    from butlers.config.files import replace_file

    values = {"name": name, "class_name": class_name(name)}
    make_folder(folder, fill(templates.MODULE, **values))
    try:
        package = folder.parent / "__init__.py"
        if not package.exists():
            package.write_text(PACKAGE_TEXT, encoding="utf-8")
        test.parent.mkdir(exist_ok=True)
        with test.open("x", encoding="utf-8") as opened:
            opened.write(fill({"test": templates.TEST}, **values)["test"])
        replace_file(file, toml, stat.S_IMODE(file.stat().st_mode))
    except OSError as error:
        shutil.rmtree(folder)
        test.unlink(missing_ok=True)
        raise ConfigInvalid(
            f"it can not be changed: {error.strerror or error}",
            path=file,
            hint="nothing was changed; check your permissions",
        ) from error
