"""What ``butlers skills`` shows: one document per command, and the same for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from butlers.cli.output import print_table
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import InvalidArguments, InvalidSkill, SkillError
from butlers.skills.capabilities import KINDS, Capabilities, capabilities_of
from butlers.skills.clients import CLIENTS, verdict
from butlers.skills.faults import telling
from butlers.skills.findings import printable
from butlers.skills.fix import fix as mend
from butlers.skills.install import Offer
from butlers.skills.reader import read_skill
from butlers.skills.registry import SkillRegistry
from butlers.skills.resolver import Resolution
from butlers.skills.rules import check
from butlers.skills.scan import SkillScanner

Document = dict[str, Any]
_MARKERS = frozenset({"skill.md", "manifest.json"})


def wanted_clients(written: str) -> tuple[str, ...]:
    wanted = tuple(client for client in (part.strip() for part in written.split(",")) if client)
    for unknown in set(wanted) - set(CLIENTS):
        raise InvalidArguments(
            f"there is no client {unknown!r}", hint=f"there are: {', '.join(CLIENTS)}"
        )
    return wanted


def check_folders(folders: Sequence[Path], *, fix: bool, clients: Sequence[str]) -> list[Document]:
    return [
        _checked(folder, fix=fix, clients=clients) if found is None else found
        for given in folders
        for folder, found in _skills_in(given)
    ]


def _skills_in(folder: Path) -> Iterator[tuple[Path, Document | None]]:
    """The skill that the folder is, or those below it, and what stood in the way of finding them."""
    with telling(folder):
        inside = {path.name.lower() for path in folder.iterdir()} if folder.is_dir() else set()
    if inside & _MARKERS or not inside:
        yield folder, None
        return
    scanned = SkillScanner(folder).scan()
    yield from ((found.folder, None) for found in scanned.skills)
    if scanned.diagnostics or not scanned.skills:
        told = scanned.diagnostics or check(folder).diagnostics
        yield folder, _document(folder, None, told, [])


def _checked(folder: Path, *, fix: bool, clients: Sequence[str]) -> Document:
    mended, checked = mend(folder) if fix else ((), check(folder))
    label = checked.skill.label if checked.skill else None
    verdicts = [verdict(client, folder, checked.reading) for client in clients]
    document = _document(folder, label, checked.diagnostics, mended)
    document["clients"] = [
        {"client": said.client, "outcome": str(said.outcome), "reasons": list(said.reasons)}
        for said in verdicts
    ]
    return document


def _document(
    folder: Path, label: str | None, diagnostics: Sequence[Diagnostic], mended: Sequence[str]
) -> Document:
    return {
        "folder": str(folder),
        "skill": label,
        "valid": not any(found.severity is Severity.ERROR for found in diagnostics),
        "diagnostics": [found.as_dict() for found in diagnostics],
        "fixed": list(mended),
        "clients": [],
    }


def print_check(outcome: Document) -> None:
    for found in outcome["diagnostics"]:
        typer.echo(_line(found))
    for code in outcome["fixed"]:
        typer.echo(f"{outcome['folder']}: fixed {code}")
    for said in outcome["clients"]:
        reasons = f": {'; '.join(said['reasons'])}" if said["reasons"] else ""
        typer.echo(f"{outcome['folder']}: {said['client']} {said['outcome']}{reasons}")
    state = "valid" if outcome["valid"] else "not valid"
    typer.echo(f"{outcome['folder']}: {outcome['skill'] or 'no skill'}, {state}")


def _line(found: Document) -> str:
    return str(Diagnostic(**found | {"file": Path(found["file"])}))


def describe(registry: SkillRegistry, name: str, version: str | None) -> Document:
    skill = registry.get(name)
    release = skill.release(version)
    document = (
        skill.as_dict(registry.usage().butlers(name))
        | {
            "version": release.version,
            "state": str(release.state),
            "hash": release.digest,
            "unchanged": True,
        }
        | ({} if release.origin is None else {"origin": release.origin})
    )
    try:
        path = registry.path(name, release.version)
    except SkillError as error:
        return document | {"unchanged": False, "error": error.message, "hint": error.hint}
    said = read_skill(path).skill
    if said is None:
        raise InvalidSkill(f"{path} holds no skill")
    return document | {
        "path": str(path),
        "name": said.title or said.name,
        "description": said.description,
        "capabilities": capabilities_of(path, said).as_dict(),
    }


def print_description(described: Document) -> None:
    told = (
        "id",
        "name",
        "version",
        "description",
        "owner",
        "origin",
        "state",
        "hash",
        "unchanged",
        "path",
    )
    rows = [(key, described[key]) for key in told if key in described]
    rows += [
        ("versions", " ".join(described["versions"])),
        ("used by", " ".join(described["usedBy"])),
    ]
    rows += [
        (kind, ", ".join(items))
        for kind, items in described.get("capabilities", {}).items()
        if items
    ]
    for key, value in rows:
        typer.echo(printable(f"{key:15} {value}"))
    if not described["unchanged"]:
        typer.echo(f"error: {described['error']}", err=True)
        typer.echo(f"hint: {described['hint']}", err=True)


def resolution_dict(found: Resolution) -> Document:
    return {
        "butler": found.butler,
        "requirements": list(found.requirements),
        "packs": [
            {
                "id": pack.id,
                "version": pack.version,
                "hash": pack.digest,
                "owner": pack.owner,
                "requiredBy": list(pack.required_by),
            }
            for pack in found.packs
        ],
        "warnings": list(found.warnings),
    }


def print_resolution(found: Resolution) -> None:
    print_table(
        ("pack", "owner", "required by", "hash"),
        [
            [pack.label, pack.owner, " → ".join(pack.required_by), pack.digest]
            for pack in found.packs
        ],
    )


def print_offer(offer: Offer) -> None:
    """To stderr: it belongs to the question, not to the answer."""
    typer.echo(printable(f"{offer.skill.label}: {offer.skill.description}"), err=True)
    typer.echo(printable(f"  belongs to {offer.owner}, from {offer.origin}"), err=True)
    if offer.moved is not None:
        typer.echo(printable(f"  not as before: {offer.moved}"), err=True)
    for found in offer.diagnostics:
        typer.echo(str(found), err=True)
    if offer.change is None:
        _print_capabilities("could use", offer.capabilities)
        return
    _print_capabilities(f"adds to {offer.before}", offer.change.added)
    _print_capabilities("no longer has", offer.change.removed)


def _print_capabilities(heading: str, capabilities: Capabilities) -> None:
    listed = [(kind, capabilities.by_kind.get(kind, ())) for kind in KINDS]
    for kind, items in listed:
        for item in items:
            typer.echo(printable(f"  {heading} {kind}: {item}"), err=True)
    if not any(items for _, items in listed):
        typer.echo(f"  {heading} nothing", err=True)
