"""``butlers tool`` and ``butlers trigger``: a butler's tools by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from butlers.cli.clients import owner_client
from butlers.cli.output import print_json
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments


def tool(
    butler: Annotated[str, typer.Argument(help="Which butler.")],
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Which of its tools.")],
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="Its arguments.")] = "{}",
) -> None:
    """Call one tool of a butler and print its result as JSON."""
    print_json(_call(butler, name, _parse(arguments)))


def trigger(
    butler: Annotated[str, typer.Argument(help="Which butler.")],
    prompt: Annotated[str, typer.Argument(help="What to do.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result.")] = False,
) -> None:
    """Start a session of a butler and print what it says."""
    result = _call(butler, "trigger", {"prompt": prompt}, timeout_s=3600)
    if as_json:
        print_json(result)
    else:
        typer.echo(result["output"])
    if not result["success"]:
        raise typer.Exit(1)


def _call(butler: str, name: str, arguments: dict[str, Any], timeout_s: float | None = None) -> Any:
    async def call() -> Any:
        async with owner_client(Settings.from_environ(), butler) as client:
            return await client.call(name, arguments, timeout_s=timeout_s)

    return asyncio.run(call())


def _parse(text: str) -> dict[str, Any]:
    hint = """write one JSON object, e.g. '{"type": "weight"}'"""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments are not a JSON object", hint=hint)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
