"""``butlers dead``: what failed for good, and another chance for it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.clients import ask_all, owner_client, running_butlers
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import NotFound

app = typer.Typer(help="Dead letters: what failed for good.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ItemId = Annotated[str, typer.Argument(metavar="ID", help="A dead letter's id, or its beginning.")]


@app.command(name="list")
def list_dead(as_json: AsJson = False) -> None:
    """The dead letters of all butlers, newest first."""
    found = asyncio.run(_collect())
    if as_json:
        print_json(found)
        return
    columns = ("id", "butler", "queue", "attempts", "finished_at", "error")
    print_table(columns, [[letter[column] for column in columns] for letter in found])


@app.command()
def show(letter: ItemId) -> None:
    """One dead letter in full, as JSON."""
    print_json(asyncio.run(_act(letter, "dead_letters_get")))


@app.command()
def replay(letter: ItemId) -> None:
    """Try it again from the start; what it has already done is not done twice."""
    done = asyncio.run(_act(letter, "dead_letters_replay"))
    typer.echo(f"replayed {done['id']}")


@app.command()
def discard(letter: ItemId) -> None:
    """Throw it away for good."""
    done = asyncio.run(_act(letter, "dead_letters_discard"))
    typer.echo(f"discarded {done['id']}")


async def _call(butler: str, tool: str, arguments: dict[str, Any]) -> Any:
    async with owner_client(Settings.from_environ(), butler) as client:
        return await client.call(tool, arguments)


async def _collect() -> list[dict[str, Any]]:
    async def of(name: str) -> list[dict[str, Any]]:
        answer = await _call(name, "dead_letters_list", {"limit": 500})
        return [{"butler": name, **letter} for letter in answer["dead_letters"]]

    names = running_butlers(Settings.from_environ())
    found = await ask_all(names, of)
    every = [letter for letters in found for letter in letters]
    return sorted(every, key=lambda letter: str(letter["finished_at"]), reverse=True)


async def _act(beginning: str, tool: str) -> Any:
    matches = [letter for letter in await _collect() if letter["id"].startswith(beginning)]
    if len(matches) != 1:
        raise NotFound(
            f"{len(matches) or 'no'} dead letters begin with {beginning!r}",
            hint="`butlers dead list` shows them",
        )
    return await _call(matches[0]["butler"], tool, {"id": matches[0]["id"]})
