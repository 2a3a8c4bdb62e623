"""``butlers skills``: what is registered, checked, installed and resolved. No database is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli import skills_state
from butlers.cli.output import print_json, print_table
from butlers.cli.skills_home import PERSON, config_of, new_skill, open_registry, split_label
from butlers.domain.errors import InvalidArguments
from butlers.domain.session import Access

if TYPE_CHECKING:
    from butlers.skills.catalogue import Registered
    from butlers.skills.install import Offer

app = typer.Typer(help="Skills: check, register, resolve and install them.", no_args_is_help=True)

app.command()(skills_state.approve)
app.command()(skills_state.assign)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A skill's folder.")]
Label = Annotated[str, typer.Argument(metavar="ID[@VERSION]", help="Such as mail-tools@1.0.0.")]
Owner = Annotated[str, typer.Option(help="Whose it is, where the skill itself names nobody.")]
Version = Annotated[str | None, typer.Option(help="Its version, where it names none itself.")]


@app.command(name="list")
def list_skills(as_json: AsJson = False) -> None:
    """All registered skills."""
    registry = open_registry()
    used_by = registry.usage().all()
    found = [skill.as_dict(used_by.get(skill.id, ())) for skill in registry.list()]
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "latest", "versions", "drafts", "owner", "used by"),
        [
            [
                entry["id"],
                entry["latestVersion"],
                " ".join(entry["versions"]),
                " ".join(_drafts(entry)),
                entry["owner"],
                " ".join(entry["usedBy"]),
            ]
            for entry in found
        ],
    )


@app.command()
def show(label: Label, as_json: AsJson = False) -> None:
    """One version of a skill: what it says, what it could do, and that its files are unchanged."""
    from butlers.cli.skills_report import describe, print_description

    registry = open_registry()
    name, version = split_label(label)
    described = describe(registry, name, version)
    if as_json:
        print_json(described)
    else:
        print_description(described)
    if not described["unchanged"]:
        raise typer.Exit(1)


@app.command()
def check(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="A skill, or a folder of skills.")
    ],
    fix: Annotated[bool, typer.Option("--fix", help="Mend what is safe to mend.")] = False,
    clients: Annotated[
        str, typer.Option("--for", help="Also say how these clients take it, such as claude,codex.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Everything that is wrong, at once. Exits with 1 when something is an error."""
    from butlers.cli.skills_report import check_folders, print_check, wanted_clients

    outcomes = check_folders(folders, fix=fix, clients=wanted_clients(clients))
    if as_json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            print_check(outcome)
    if not all(outcome["valid"] for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def register(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="A skill's folder.")
    ] = None,
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Those that come with Butlers.")
    ] = False,
    owner: Owner = PERSON,
    version: Version = None,
) -> None:
    """Add a skill that is not registered yet."""
    if (folder is None) is not built_in:
        raise InvalidArguments("which skill?", hint="name its folder, or add --built-in")
    if folder is not None:
        _say_registered(open_registry().register(new_skill(folder, owner, version)))
        return
    from butlers.skills.builtin import register_built_in

    for added in register_built_in(open_registry()):
        _say_registered(added)


@app.command()
def update(folder: Folder, owner: Owner = PERSON, version: Version = None) -> None:
    """Add a version to a registered skill. A version that is there never changes."""
    updated = open_registry().update(new_skill(folder, owner, version))
    typer.echo(f"updated {updated.id}: {', '.join(updated.versions)}")


@app.command()
def remove(label: Label) -> None:
    """Remove a skill, or one version of it. Refused while somebody uses it."""
    name, version = split_label(label)
    open_registry().delete(name, version)
    typer.echo(f"removed {label}")


@app.command()
def resolve(
    packs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PACK...]", help="Such as mail-tools@^1; else what BUTLER names."),
    ] = None,
    butler: Annotated[str | None, typer.Option(help="Whose packs they are.")] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Write skills.lock into the butler's folder.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Which versions a butler gets, dependencies first, or why it can not have them."""
    from butlers.cli.skills_report import print_resolution, resolution_dict
    from butlers.skills.lock import LOCK_FILE, read_lock, write_lock
    from butlers.skills.resolver import resolve as resolve_packs

    config = config_of(butler) if butler else None
    if config is None and (lock or not packs):
        raise InvalidArguments(
            "whose packs?", hint="`butlers skills resolve --butler NAME`, or name packs"
        )
    wanted = packs or (config.skills.packs if config else ())
    file = config.directory / LOCK_FILE if config else None
    locked = read_lock(file) if file else {}
    registry = open_registry()
    catalogue = registry.catalogue()
    found = resolve_packs(catalogue, butler or PERSON, wanted, locked)
    for pack in found.packs:  # one that was tampered with must not look fine
        registry.path(pack.id, pack.version, catalogue)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if lock and file:
        write_lock(file, found)
    if as_json:
        print_json(resolution_dict(found))
    else:
        print_resolution(found)


@app.command()
def run(
    label: Label,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="Its path, or just its name.")],
    arguments: Annotated[
        str, typer.Argument(metavar="[JSON]", help="An object, or a list of words; - reads stdin.")
    ] = "{}",
    butler: Annotated[
        str | None, typer.Option(help="As this butler, in its folder; else here, as yourself.")
    ] = None,
    access: Annotated[Access, typer.Option(help="What the script may touch.")] = Access.WORKSPACE,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="It is ended after that.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run a script of a registered skill. Its variables come from yours, as far as it declares them."""
    from butlers.cli.skills_run import Asked, print_answer, run_script

    work = config_of(butler).directory if butler else Path.cwd()
    asked = Asked(label, script, arguments, butler or PERSON, work, access, timeout_s)
    answer = run_script(open_registry(), asked)
    if as_json:
        print_json(answer.as_dict())
    else:
        print_answer(answer)
    if not answer.success:
        raise typer.Exit(1)


@app.command()
def install(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, a .zip, a .tar.gz, or git+https://…@COMMIT[#subdirectory=FOLDER].",
        ),
    ],
    commit: Annotated[
        str | None, typer.Option(help="The commit, where the address does not name it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
    owner: Owner = PERSON,
    version: Version = None,
) -> None:
    """Install a skill from elsewhere, after showing what it could do."""
    from butlers.cli.skills_report import print_offer
    from butlers.skills.git import git_source
    from butlers.skills.install import Installer

    def agrees(offer: Offer) -> bool:
        if yes:
            return True
        return sys.stdin.isatty() and typer.confirm(f"install {offer.skill.label}?", err=True)

    found = git_source(source, commit) or Path(source)
    installed = Installer(open_registry(), owner, version).install(found, agrees, print_offer)
    typer.echo(f"installed {installed.id}: {', '.join(installed.versions)}")


def _drafts(entry: dict[str, Any]) -> list[str]:
    """The versions that a person has not approved yet."""
    releases = entry["releases"].items()
    return [version for version, release in releases if release["state"] == "draft"]


def _say_registered(added: Registered) -> None:
    typer.echo(f"registered {added.id}: {', '.join(added.versions)}")
