"""Checks, descriptions and script runs behind ``butlers skills``, and how they are printed."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from butlers.cli.output import print_json, print_line, print_message, print_table, print_text
from butlers.config.fleet import sandbox_required
from butlers.config.folders import CONFIG_FILE
from butlers.config.settings import Settings
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import InvalidArguments, InvalidSkill, SkillError
from butlers.domain.session import Access
from butlers.process.runner import ScriptLimits
from butlers.skills.check.clients import CLIENTS, client_verdict
from butlers.skills.check.fix import fix as fix_skill
from butlers.skills.check.rules import check
from butlers.skills.install.capabilities import capabilities_of
from butlers.skills.install.install import InstallOffer
from butlers.skills.install.permissions import Permission, PermissionState, permissions_of
from butlers.skills.reader import SKILL_FILES, named_folder, read_skill, scan_skills
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import Resolution, dependency_cycle, resolve
from butlers.skills.scripts.answer import ScriptAnswer
from butlers.skills.scripts.runner import DEFAULT_PATH, ScriptRun, ScriptRunner
from butlers.skills.skill import Pack, SkillSpec
from butlers.skills.skill_set import FOLDER as SKILLS_FOLDER
from butlers.skills.tree import translate_os_errors

_STDIN = "-"
FOLDER_NAME = "folder-name"
_MARKS = {
    PermissionState.SAME: " ",
    PermissionState.NEW: "+",
    PermissionState.CHANGED: "~",
    PermissionState.GONE: "-",
}
Document = dict[str, Any]


def wanted_clients(written: str) -> tuple[str, ...]:
    wanted = tuple(client for client in (part.strip() for part in written.split(",")) if client)
    for unknown in set(wanted) - set(CLIENTS):
        raise InvalidArguments(
            f"there is no client {unknown!r}", hint=f"known clients: {', '.join(CLIENTS)}"
        )
    return wanted


def check_folders(folders: Sequence[Path], *, fix: bool, clients: Sequence[str]) -> list[Document]:
    return [
        _checked(folder, fix=fix, clients=clients) if found is None else found
        for given in folders
        for folder, found in _skills_in(given)
    ]


def _skills_in(folder: Path) -> Iterator[tuple[Path, Document | None]]:
    """Yield the skill in the folder, or the skills below it, and the problems of finding them."""
    folder = named_folder(folder)
    with translate_os_errors(folder):
        inside = {path.name.lower() for path in folder.iterdir()} if folder.is_dir() else set()
    if inside & SKILL_FILES or not inside:
        yield folder, None
        return
    scanned = scan_skills(folder)
    yield from ((found.folder, None) for found in scanned.skills)
    if scanned.diagnostics or not scanned.skills:
        problems = scanned.diagnostics or check(folder).diagnostics
        yield folder, _document(folder, None, problems, [])


def _checked(folder: Path, *, fix: bool, clients: Sequence[str]) -> Document:
    fixed, checked = fix_skill(folder) if fix else ((), check(folder))
    label = checked.skill.label if checked.skill else None
    verdicts = [client_verdict(client, folder, checked.reading) for client in clients]
    document = _document(folder, label, _strict_name(folder, checked.diagnostics), fixed)
    document["clients"] = [
        {"client": one.client, "outcome": str(one.outcome), "reasons": list(one.reasons)}
        for one in verdicts
    ]
    return document


def _strict_name(folder: Path, diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Make a wrong folder name an error if the skill is in a butler's folder, where names are strict."""
    skills = folder.absolute().parent
    strict = skills.name == SKILLS_FOLDER and (skills.parent / CONFIG_FILE).is_file()
    return [
        replace(found, severity=Severity.ERROR) if strict and found.code == FOLDER_NAME else found
        for found in diagnostics
    ]


def _document(
    folder: Path, label: str | None, diagnostics: Sequence[Diagnostic], fixed: Sequence[str]
) -> Document:
    return {
        "folder": str(folder),
        "skill": label,
        "valid": not any(found.severity is Severity.ERROR for found in diagnostics),
        "diagnostics": [found.as_dict() for found in diagnostics],
        "fixed": list(fixed),
        "clients": [],
    }


def print_check(outcome: Document) -> None:
    for found in outcome["diagnostics"]:
        print_line(_line(found))
    for code in outcome["fixed"]:
        print_line(f"{outcome['folder']}: fixed {code}")
    for client in outcome["clients"]:
        reasons = f": {'; '.join(client['reasons'])}" if client["reasons"] else ""
        print_line(f"{outcome['folder']}: {client['client']} {client['outcome']}{reasons}")
    state = "valid" if outcome["valid"] else "not valid"
    print_line(f"{outcome['folder']}: {outcome['skill'] or 'no skill'}, {state}")


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
        | ({} if release.commit is None else {"commit": release.commit})
    )
    try:
        path = registry.path(name, release.version)
    except SkillError as error:
        return document | {"unchanged": False, "error": error.message, "hint": error.hint}
    content = release.with_grants(_read(path))
    return document | {
        "path": str(path),
        "name": content.title or content.name,
        "description": content.description,
        "capabilities": capabilities_of(path, content).as_dict(),
    }


def print_description(described: Document) -> None:
    keys = (
        "id",
        "name",
        "version",
        "description",
        "owner",
        "origin",
        "commit",
        "state",
        "hash",
        "unchanged",
        "path",
    )
    rows = [(key, described[key]) for key in keys if key in described]
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
        print_line(f"{key:15} {value}")
    if not described["unchanged"]:
        print_message("error", described["error"])
        print_message("hint", described["hint"])


def warn_of_cycle(registry: SkillRegistry, name: str) -> None:
    if cycle := dependency_cycle(registry.catalog(), name):
        print_message(
            "warning", f"no butler can use {name}: circular dependency: {' → '.join(cycle)}"
        )


def print_resolution(found: Resolution) -> None:
    print_table(
        ("pack", "owner", "required by", "hash"),
        [
            [pack.label, pack.owner, " → ".join(pack.required_by), pack.digest]
            for pack in found.packs
        ],
    )


def print_offer(offer: InstallOffer) -> None:
    """Print to stderr, because it belongs to the question and not to the result."""
    print_line(f"{offer.skill.label}: {offer.skill.description}", err=True)
    at = f" at {offer.commit}" if offer.commit else ""
    print_line(f"  belongs to {offer.owner}, from {offer.origin}{at}", err=True)
    if offer.moved is not None:
        print_line(f"  changed: {offer.moved}", err=True)
    for found in offer.diagnostics:
        print_line(str(found), err=True)
    print_permissions(offer.permissions, offer.before)


def print_capabilities(pack: Pack) -> None:
    """Print what the skill may do if it is trusted."""
    print_permissions(permissions_of(capabilities_of(pack.folder, pack.skill)), None)


def print_permissions(permissions: Sequence[Permission], before: str | None) -> None:
    """Print to stderr, line by line; compared with ``before``, each change has a mark."""
    for one in permissions:
        mark = _MARKS[one.state] if before is not None else " "
        print_line(f"{mark} may {one.verb:7} {one.what}", err=True)
    if before is not None:
        changed = sum(one.state is not PermissionState.SAME for one in permissions)
        print_line(
            f"  {changed or 'no'} changes since {before} (+ new, ~ changed, - gone)", err=True
        )


def offer_document(offer: InstallOffer) -> Document:
    """Return the offer in JSON form."""
    return {
        "id": offer.skill.name,
        "version": offer.skill.version,
        "description": offer.skill.description,
        "owner": offer.owner,
        "origin": offer.origin,
        "commit": offer.commit,
        "before": offer.before,
        "permissions": [one.as_dict() for one in offer.permissions],
        "capabilities": offer.capabilities.as_dict(),
        "diagnostics": [found.as_dict() for found in offer.diagnostics],
    }


@dataclass(frozen=True, slots=True)
class ScriptCall:
    label: str
    script: str
    arguments: str
    user: str
    work: Path
    access: Access
    timeout_s: float


def run_script(registry: SkillRegistry, wanted: ScriptCall) -> ScriptAnswer:
    arguments = _parse_arguments(
        sys.stdin.read() if wanted.arguments == _STDIN else wanted.arguments
    )
    settings = Settings.from_environ()
    environ = settings.environ
    call = ScriptRun(
        wanted.script,
        arguments,
        wanted.work,
        environ,
        wanted.access,
        ScriptLimits(seconds=wanted.timeout_s),
    )
    search_path = environ.get("PATH") or DEFAULT_PATH
    runner = ScriptRunner(registry.home, search_path, sandbox_required(settings))
    pack = _pack(registry, wanted)
    return asyncio.run(runner.run(pack, replace(call, agreed=pack.digest)))


def _pack(registry: SkillRegistry, wanted: ScriptCall) -> Pack:
    """Resolve like the packs of a butler: only its maker may use a draft."""
    catalog = registry.catalog()
    found = resolve(catalog, wanted.user, [wanted.label])
    for warning in found.warnings:
        print_message("warning", str(warning))
    chosen = found.packs[-1]  # dependencies come first
    folder = registry.path(chosen.id, chosen.version, catalog)
    release = catalog.get(chosen.id).release(chosen.version)
    return Pack(folder, release.with_grants(_read(folder)), chosen.digest)


def _read(folder: Path) -> SkillSpec:
    skill = read_skill(folder).skill
    if skill is None:
        raise InvalidSkill(
            f"{folder} holds no skill", hint=f"`butlers skills check {shlex.quote(str(folder))}`"
        )
    return skill


def _parse_arguments(written: str) -> Any:
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments are not JSON: {error}",
            hint='for example \'{"path": "notes.md"}\'',
        ) from error
    if not isinstance(arguments, dict | list):
        raise InvalidArguments(
            "the arguments are neither an object nor a list of words", hint="for example {}"
        )
    return arguments


def print_answer(answer: ScriptAnswer) -> None:
    """Print the result to stdout and everything else to stderr."""
    for name in answer.missing:
        print_message("warning", f"{name} is declared but not set")
    for line in answer.stderr.splitlines():
        print_line(line, err=True)
    if not answer.success:
        print_message("error", answer.error or "")
        print_message("hint", f"the exit code of the script was {answer.exit_code}")
    elif isinstance(answer.result, str):
        print_text(answer.result)
    elif answer.result is not None:
        print_json(answer.result)
