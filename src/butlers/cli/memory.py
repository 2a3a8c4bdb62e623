"""``butlers memory``: look into what the butlers remember, correct it, forget it, export and import it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from butlers.cli.fleet import Answers, Record, call, call_holder, full_id, running_butlers
from butlers.cli.output import AsJson, confirm, print_json, print_line, print_table, print_text
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError, InvalidArguments, NotFound
from butlers.wire.answers import gather_answers

app = typer.Typer(help="Show, correct and forget what the butlers remember.", no_args_is_help=True)

ItemId = Annotated[str, typer.Argument(metavar="ID", help="Id of a memory, as `search` prints it.")]
OnlyButler = Annotated[str | None, typer.Option("--butler", help="Only this butler's memory.")]
KINDS = ("entity", "episode", "fact", "rule")
VERSION = 1
PAGE = 500
SEARCH_S = 120.0  # the first search embeds what is new
COUNTS = ("episodes", "facts", "rules", "entities", "pending", "fading")
QUALITY = ("junk", "duplicates", "contradictions", "unsourced")


@app.command()
def stats(butler: OnlyButler = None, as_json: AsJson = False) -> None:
    """Count memories, and what should not be among them: junk, duplicates, unsourced items."""
    answers = asyncio.run(_ask(butler, lambda name: call(name, "memory_stats")))
    if as_json:
        print_json([{"butler": name, **found} for name, found in answers.found.items()])
    else:
        rows = [
            (name, *(found[key] for key in COUNTS), *(found["quality"][key] for key in QUALITY))
            for name, found in answers.found.items()
        ]
        print_table(("butler", *COUNTS, *QUALITY), rows)
    answers.exit_on_failures()


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Words, a question, a name or a time.")],
    butler: OnlyButler = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most results per butler.")] = 10,
    outside: Annotated[bool, typer.Option(help="Also what other people wrote.")] = False,
    history: Annotated[bool, typer.Option(help="Also facts that are no longer valid.")] = False,
    explain: Annotated[bool, typer.Option(help="Show why each memory came back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search the memory of every butler."""
    arguments = {
        "query": query,
        "limit": limit,
        "trust": "any" if outside else "owner",
        "history": history,
        "explain": explain,
    }

    async def ask(name: str) -> list[Record]:
        found = await call(name, "memory_search", arguments, timeout_s=SEARCH_S)
        for note in found.get("notes", ()):
            print_line(f"{name}: {note}", err=True)
        return [{"butler": name, **item} for item in found["items"]]

    answers = asyncio.run(_ask(butler, ask))
    items = [item for found in answers.found.values() for item in found]
    if as_json:
        print_json(items)
    else:
        for item in items:
            _print_item(item)
    answers.exit_on_failures()


@app.command()
def show(item_id: ItemId, as_json: AsJson = False) -> None:
    """Show one memory: its source, its history, its links and what happened to it."""
    butler, item = asyncio.run(_holder("memory_get", {"id": _full_id(item_id)}))
    if as_json:
        print_json({"butler": butler, **item})
        return
    _print_item({"butler": butler, **item})
    for key, value in item["provenance"].items():
        if value:
            print_line(f"  {key}: {value}")
    for other in item.get("history", ()):
        print_line(f"  {other['validity']}: {other['content']} (from {other.get('valid_from')})")
    for event in item["events"]:
        print_line(f"  {event['at']}: {event['what']}")


@app.command()
def correct(
    item_id: ItemId, content: Annotated[str, typer.Argument(help="The right value.")]
) -> None:
    """Replace a wrong fact. The old value stays in its history."""
    arguments = {"id": _full_id(item_id), "content": content}
    butler, answer = asyncio.run(_holder("memory_correct", arguments))
    print_line(f"{butler}: corrected, now {answer['id']}")


@app.command()
def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of memories.")
    ] = None,
    entity: Annotated[
        str | None, typer.Option(help="Everything about this person or thing (id).")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Everything from this message (request id).")
    ] = None,
    sender: Annotated[str | None, typer.Option(help="Everything from this sender.")] = None,
    since: Annotated[str | None, typer.Option(help="From this time on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (RFC 3339).")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete memories for good, in every butler, with everything derived from them."""
    given = {
        "ids": [_full_id(each) for each in ids or ()] or None,
        "entity_id": entity,
        "source": source,
        "sender": sender,
        "since": since,
        "until": until,
    }
    arguments = {key: value for key, value in given.items() if value}
    if not arguments:
        raise InvalidArguments("nothing is named to forget", hint="give ids, or an option")
    if not yes and not confirm("Forget this for good? It cannot be undone."):
        raise typer.Exit(1)
    answers = asyncio.run(_ask(None, lambda name: _forget(name, arguments)))
    if as_json:
        print_json([{"butler": name, **found} for name, found in answers.found.items()])
    else:
        for name, found in answers.found.items():
            gone = ", ".join(f"{count} {kind}" for kind, count in found["forgotten"].items())
            print_line(f"{name}: {gone or 'nothing to forget'}")
    answers.exit_on_failures()


async def _forget(butler: str, arguments: Record) -> Record:
    """Forget in one butler. An entity that it does not know is nothing to forget."""
    try:
        found: Record = await call(butler, "memory_forget", arguments)
    except NotFound as error:
        if "tool" in error.message:
            raise
        return {"forgotten": {}}
    return found


@app.command()
def export(
    file: Annotated[Path | None, typer.Argument(help="File to write; without it, stdout.")] = None,
    butler: OnlyButler = None,
) -> None:
    """Write all memories as JSON. Vectors are left out; they are computed again after an import."""
    answers = asyncio.run(_ask(butler, _export))
    document = {"version": VERSION, "butlers": dict(answers.found)}
    if file is None:
        print_json(document)
    else:
        file.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        counts = sum(len(items) for found in answers.found.values() for items in found.values())
        print_line(f"{counts} memories of {len(answers.found)} butlers are in {file}")
    answers.exit_on_failures()


async def _export(butler: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for kind in KINDS:
        found[kind] = []
        after = None
        while True:
            page = await call(
                butler,
                "memory_export",
                {"kind": kind, "limit": PAGE, **({"after": after} if after else {})},
            )
            found[kind] += page["items"]
            if len(page["items"]) < PAGE:
                break
            after = page["items"][-1]["id"]
    return found


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(help="File that `export` wrote.")],
    butler: OnlyButler = None,
) -> None:
    """Read memories back. What was forgotten meanwhile stays forgotten."""
    try:
        document = json.loads(file.read_text())
        butlers: dict[str, dict[str, list[Record]]] = document["butlers"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArguments(
            f"{file} cannot be read as an export: {error}", hint="use a file that `export` wrote"
        ) from error
    chosen = {name: items for name, items in butlers.items() if butler in (None, name)}
    for name, items in chosen.items():
        counts = asyncio.run(_import(name, items))
        shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        print_line(f"{name}: {shown or 'nothing to import'}")


async def _import(butler: str, kinds: dict[str, list[Record]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for kind in KINDS:
        items = kinds.get(kind, [])
        for start in range(0, len(items), PAGE):
            part = {"kind": kind, "items": items[start : start + PAGE]}
            counts = await call(butler, "memory_import", part, timeout_s=SEARCH_S)
            for what, count in counts.items():
                total[what] = total.get(what, 0) + count
    return total


async def _ask(butler: str | None, ask: Callable[[str], Awaitable[Any]]) -> Answers[Any]:
    """Ask the butlers that have a memory. One without the module is left out; a failed one is not."""
    names = [butler] if butler else running_butlers(Settings.from_environ())
    answers = await gather_answers(names, ask)
    failed = {name: error for name, error in answers.failed.items() if not _has_none(error)}
    if not answers.found and not failed:
        raise NotFound(
            "no butler that runs has a memory", hint="add [modules.memory] to its butler.toml"
        )
    return Answers(answers.found, failed)


def _has_none(error: ButlersError) -> bool:
    return isinstance(error, NotFound) and "there is no tool" in error.message


async def _holder(tool: str, arguments: Record) -> tuple[str, Any]:
    names = running_butlers(Settings.from_environ())
    what = f"the memory {arguments['id']}"
    return await call_holder(names, tool, arguments, what, "`butlers memory search` shows ids")


def _full_id(text: str) -> str:
    found = full_id(text)
    if found is None:
        raise InvalidArguments(
            f"{text!r} is not an id", hint="`butlers memory search` prints the ids of memories"
        )
    return found


def _print_item(item: Record) -> None:
    source = f", from {item['source']['sender']}" if "source" in item else ""
    state = f", {item['validity']}" if "validity" in item else ""
    print_line(f"{item['id']}  {item['butler']} {item['kind']}, {item['date']}{source}{state}")
    match item["kind"]:
        case "fact":
            text = f"{item['subject']} · {item['predicate'].replace('_', ' ')}: {item['content']}"
        case "episode":
            text = f"{item['speaker']}: {item['content']}"
        case _:
            text = item["content"]
    print_text(f"  {text}", indent=2)
    if why := item.get("why"):
        print_line("  why: " + ", ".join(f"{name} {value:+.2f}" for name, value in why.items()))
