"""Write the generated documents: ``docs/commands.md`` from the command line's own code, the table of codes
in ``docs/skills.md``, and ``docs/images/terminal.svg`` from the session in ``docs/images/terminal.txt``.

Run it after a change of a command or code: ``.venv/bin/python scripts/write_docs.py``. A test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "docs" / "commands.md"
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
    SKILLS.write_text(skills_page(), encoding="utf-8")
    PICTURE.write_text(terminal_picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
