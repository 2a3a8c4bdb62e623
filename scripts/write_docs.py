"""Write the generated documents: ``docs/commands.md`` from the command line's own code, the reference in
``docs/configuration.md`` from the configuration models, the table of codes in ``docs/skills.md``, and
``docs/images/terminal.svg`` from the session in ``docs/images/terminal.txt``.

Run it after a change of a command, key or code: ``.venv/bin/python scripts/write_docs.py``. A test compares.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "docs" / "commands.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
SKILLS = ROOT / "docs" / "skills.md"
TRANSCRIPT = ROOT / "docs" / "images" / "terminal.txt"
PICTURE = ROOT / "docs" / "images" / "terminal.svg"

INTRODUCTION = """\
# Commands

Generated from the code by `scripts/write_docs.py`; do not edit. `butlers COMMAND --help` prints the same.

Every command reads `BUTLERS_HOME` and the other variables of the [README](../README.md#variables). Data goes
to stdout, everything else to stderr. The exit code is 0 only for success, 1 for an error, 2 for a wrong
command line and 130 after Ctrl-C. Every error is followed by a line that starts with `hint:`.
"""

CHARACTER, LINE, MARGIN = 8.4, 20, 18  # pixels, for a monospaced font of 14 pixels
TYPES = {"int": "NUMBER", "float": "NUMBER", "Path": "PATH"}


def commands_page() -> str:
    """Return the text of ``docs/commands.md``."""
    import typer

    from butlers.cli.main import app

    root = typer.main.get_command(app)
    commands = dict(_commands(root, ("butlers",)))
    index = "\n".join(
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_first_line(command)} |"
        for name, command in commands.items()
    )
    sections = "\n".join(_section(name, command) for name, command in commands.items())
    return f"{INTRODUCTION}\n| Command | Purpose |\n|---|---|\n{index}\n\n{sections}"


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _first_line(command: Any) -> str:
    return str(command.help).split("\n")[0]


def _section(name: str, command: Any) -> str:
    shown = [one for one in command.params if not one.hidden and one.name != "help"]
    usage = " ".join((name, *(_usage(one) for one in shown)))
    text = f"## {name}\n\n{str(command.help).strip()}\n\n```\n{usage}\n```\n"
    if shown:
        rows = "\n".join(f"| `{_title(one)}` | {_help(one)} |" for one in shown)
        text += f"\n| Argument or option | Meaning |\n|---|---|\n{rows}\n"
    return text


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _usage(parameter: Any) -> str:
    title = _title(parameter).split(", ")[0]
    optional = not parameter.required and not title.startswith("[")
    return f"[{title}]" if optional else title


def _title(parameter: Any) -> str:
    if _is_argument(parameter):
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {_value(parameter)}"


def _value(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    return str(parameter.metavar or TYPES.get(getattr(kind, "__name__", ""), "TEXT"))


def _help(parameter: Any) -> str:
    text = str(parameter.help or "").replace("|", "\\|")
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        text += f" One of {', '.join(f'`{one.value}`' for one in kind)}."
    if parameter.min is not None and parameter.max is not None:
        text += f" {parameter.min} to {parameter.max}."
    default = parameter.default
    if default not in (None, False, True, "") and not _is_argument(parameter):
        text += f" Default: `{default.value if isinstance(default, Enum) else default}`."
    return text


REFERENCE = "## Reference\n"
GENERATED = "This part is generated from the code by `scripts/write_docs.py`; do not edit it.\n"
DEFAULT = re.compile(r" ?Default: (.+)\.$")
KINDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    Decimal: "number",
    str: "text",
    Path: "path",
    Any: "any",
}


def configuration_page() -> str:
    """Return the text of ``docs/configuration.md`` with the keys of today."""
    from butlers.config.butler import ButlerFile
    from butlers.config.fleet import FleetConfig

    before = CONFIGURATION.read_text(encoding="utf-8").split(REFERENCE)[0]
    tables = [
        "### fleet.toml\n",
        *_tables(FleetConfig, ""),
        "### butler.toml\n",
        *_tables(ButlerFile, ""),
        "### Channels\n",
        *_channel_tables(),
    ]
    return "\n".join([before + REFERENCE, GENERATED, *tables])


def _tables(model: Any, name: str, brackets: str = "[{}]") -> Iterator[str]:
    """Yield the tables of a model: its own keys, then those of the tables in it."""
    meanings = key_meanings(model)
    inner = {key: _inner_model(field.annotation) for key, field in model.model_fields.items()}
    rows = [
        _key_row(field, key, meanings)
        for key, field in model.model_fields.items()
        if not inner[key]
    ]
    if rows:
        heading = f"#### `{brackets.format(name)}`\n\n" if name else ""
        yield (
            f"{heading}| Key | Type | Default | Meaning |\n|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    for key, field in model.model_fields.items():
        if inner[key]:
            many = get_origin(field.annotation) is tuple
            below = f"{name}.{key}" if name else key
            yield from _tables(inner[key], below, "[[{}]]" if many else "[{}]")


def _channel_tables() -> Iterator[str]:
    from butlers.channels.registry import INBOUND, OUTBOUND, PACKAGE, load_channels

    for channel in load_channels(Path("/nonexistent")).channels.values():
        if not type(channel).__module__.startswith(PACKAGE):
            continue  # installed beside ours
        for table, config in (
            (OUTBOUND, channel.outbound_config),
            (INBOUND, channel.inbound_config),
        ):
            if model := _inner_model(config):
                named = ".NAME" if _is_mapping(config) else ""
                yield from _tables(model, f"{table}.{channel.name}{named}")


def key_meanings(model: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a model, by field."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not cls.__module__.startswith("butlers."):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        for field, text in pairwise(getattr(body, "body", ())):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(meaning))),
                ):
                    found[name] = " ".join(meaning.split())
    return found


def _key_row(field: Any, key: str, meanings: Mapping[str, str]) -> str:
    meaning = meanings[key]
    default = _default(field)
    if default == "none" and (computed := DEFAULT.search(meaning)):
        meaning, default = meaning[: computed.start()], computed[1]
    kind = "seconds" if key.endswith("_s") else _type(field.annotation, field.metadata)
    cells = (f"`{field.alias or key}`", kind, default, meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    match field.default:
        case None:
            return "none"
        case bool(value):
            return f"`{str(value).lower()}`"
        case tuple(values):
            listed = ", ".join(f'"{value}"' for value in values)
            return f"`[{listed}]`"
        case str() | Path() as value:
            return f'`"{value}"`'
        case Mapping():
            return "empty"
        case value:
            return f"`{value}`"


def _type(kind: Any, metadata: Any = ()) -> str:
    if get_origin(kind) in (types.UnionType, Union):
        return _type(next(one for one in get_args(kind) if one is not type(None)))
    if hasattr(kind, "__metadata__"):
        return _type(get_args(kind)[0], _flat(kind.__metadata__))
    if get_origin(kind) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return f"list of {_type(get_args(kind)[0])}s"
    if _is_mapping(kind):
        return "table"
    return KINDS[kind] + _bounds(metadata)


def _flat(metadata: Any) -> list[Any]:
    return [one for part in metadata for one in getattr(part, "metadata", None) or (part,)]


def _bounds(metadata: Any) -> str:
    texts = {"ge": "at least {}", "gt": "above {}", "le": "at most {}"}
    found = [
        text.format(getattr(one, name))
        for one in metadata
        for name, text in texts.items()
        if hasattr(one, name)
    ]
    return f", {', '.join(found)}" if found else ""


def _is_mapping(kind: Any) -> bool:
    if hasattr(kind, "__metadata__"):
        return _is_mapping(get_args(kind)[0])
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _inner_model(kind: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := _inner_model(part))), None)


def skills_page() -> str:
    """Return the text of ``docs/skills.md`` with the codes of today."""
    from butlers.skills.findings import RULES

    heading = "| Code | Severity | `--fix` | Meaning |\n|---|---|---|---|\n"
    rows = "".join(
        f"| `{code}` | {rule.severity} | {'yes' if rule.fixable else ''} | {rule.meaning} |\n"
        for code, rule in RULES.items()
    )
    before, after = SKILLS.read_text(encoding="utf-8").split(heading)
    return before + heading + rows + after[after.index("\n\n") + 1 :]


def terminal_picture() -> str:
    """Return the recorded terminal session as an SVG picture. Lines that start with $ were typed."""
    lines = TRANSCRIPT.read_text(encoding="utf-8").rstrip("\n").split("\n")
    width = round(max(map(len, lines)) * CHARACTER) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN + 24
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + 38 + number * LINE}" class="{_style(line)}"'
        f' xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">
<title>Four butlers commands and their output</title>
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
.typed {{ fill: #7ee787; }}
.printed {{ fill: #e6edf3; }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="6" fill="#ff5f57"/>
<circle cx="40" cy="18" r="6" fill="#febc2e"/>
<circle cx="60" cy="18" r="6" fill="#28c840"/>
{rows}
</svg>
"""


def _style(line: str) -> str:
    return "typed" if line.startswith("$ ") else "printed"


def main() -> int:
    COMMANDS.write_text(commands_page(), encoding="utf-8")
    CONFIGURATION.write_text(configuration_page(), encoding="utf-8")
    SKILLS.write_text(skills_page(), encoding="utf-8")
    PICTURE.write_text(terminal_picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
