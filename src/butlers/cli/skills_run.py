"""``butlers skills run``: one script by hand, as a butler or as the person who asks."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments, InvalidSkill
from butlers.domain.session import Access
from butlers.process.runner import ScriptLimits
from butlers.skills.findings import printable
from butlers.skills.reader import read_skill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import resolve
from butlers.skills.scripts.answer import Answer
from butlers.skills.scripts.runner import PATH, Call, Pack, ScriptRunner

_STDIN = "-"


@dataclass(frozen=True, slots=True)
class Asked:
    label: str
    script: str
    arguments: str
    who: str
    work: Path
    access: Access
    timeout_s: float


def run_script(registry: SkillRegistry, asked: Asked) -> Answer:
    arguments = _parsed(sys.stdin.read() if asked.arguments == _STDIN else asked.arguments)
    environ = Settings.from_environ().environ
    call = Call(
        asked.script,
        arguments,
        asked.work,
        environ,
        asked.access,
        ScriptLimits(seconds=asked.timeout_s),
    )
    runner = ScriptRunner(registry.home, environ.get("PATH") or PATH)
    return asyncio.run(runner.run(_pack(registry, asked), call))


def _pack(registry: SkillRegistry, asked: Asked) -> Pack:
    """Resolved as a butler's configuration would be: a draft is its maker's only."""
    catalogue = registry.catalogue()
    found = resolve(catalogue, asked.who, [asked.label])
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    chosen = found.packs[-1]  # after all that it depends on
    folder = registry.path(chosen.id, chosen.version, catalogue)
    skill = read_skill(folder).skill
    if skill is None:
        raise InvalidSkill(f"{folder} holds no skill")
    return Pack(folder, skill, chosen.digest)


def _parsed(written: str) -> Any:
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments are no JSON: {error}", hint='such as \'{"path": "notes.md"}\''
        ) from error
    if not isinstance(arguments, dict | list):
        raise InvalidArguments(
            "the arguments are neither an object nor a list of words", hint="such as {}"
        )
    return arguments


def print_answer(answer: Answer) -> None:
    """The result to stdout, all else to stderr."""
    for name in answer.missing:
        typer.echo(f"warning: {name} is declared and not set", err=True)
    for line in answer.stderr.splitlines():
        typer.echo(printable(line), err=True)
    if not answer.success:
        typer.echo(f"error: {printable(answer.error or '')}", err=True)
        typer.echo(f"hint: the script left with the code {answer.exit_code}", err=True)
    elif isinstance(answer.result, str):
        typer.echo(answer.result)
    elif answer.result is not None:
        typer.echo(json.dumps(answer.result, indent=2, ensure_ascii=False))
