"""``butlers dead``: what failed for good, and another chance for it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.clients import find_by_beginning, known_butlers, owner_client
from butlers.cli.everyone import Answers, ask_all, ask_who_knows, whole_id
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings

app = typer.Typer(help="Dead letters: what failed for good.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ItemId = Annotated[str, typer.Argument(metavar="ID", help="A dead letter's id, or its beginning.")]


@app.command(name="list")
def list_dead(as_json: AsJson = False) -> None:
    """The dead letters of all butlers, newest first."""
    answers = asyncio.run(_ask())
    found = _newest_first(answers)
    if as_json:
        print_json(found)
    else:
        columns = ("id", "butler", "queue", "attempts", "finished_at", "error")
        print_table(columns, [[letter[column] for column in columns] for letter in found])
    answers.tell_failures()


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


async def _ask() -> Answers[list[dict[str, Any]]]:
    async def of(name: str) -> list[dict[str, Any]]:
        answer = await _call(name, "dead_letters_list", {"limit": 500})
        return [{"butler": name, **letter} for letter in answer["dead_letters"]]

    return await ask_all(await known_butlers(Settings.from_environ()), of)


def _newest_first(answers: Answers[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    every = [letter for letters in answers.found.values() for letter in letters]
    return sorted(every, key=lambda letter: str(letter["finished_at"]), reverse=True)


async def _act(named: str, tool: str) -> Any:
    """By its whole id it is found however old it is; by a beginning among the newest."""
    names = await known_butlers(Settings.from_environ())
    item_id = whole_id(named)
    if item_id is None:
        owners = {letter["id"]: letter["butler"] for letter in _newest_first(await _ask())}
        item_id = find_by_beginning(named, list(owners), "dead letters", "butlers dead list")
        names = [owners[item_id]]
    _name, answer = await ask_who_knows(
        names,
        lambda name: _call(name, tool, {"id": item_id}),
        f"a dead letter {item_id}",
        "`butlers dead list` shows them",
    )
    return answer
