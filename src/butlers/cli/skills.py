"""``butlers skills``: check, register, resolve, install and run skills. No database is needed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.fleet import find_roster, load_butler, load_roster
from butlers.cli.output import AsJson, confirm, print_json, print_line, print_message, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, InvalidArguments, NotFound, SkillError
from butlers.domain.session import Access

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.skills.install.install import InstallOffer
    from butlers.skills.registry.catalog import RegisteredSkill
    from butlers.skills.registry.registry import NewSkill, SkillRegistry

app = typer.Typer(help="Check, register, resolve, install and run skills.", no_args_is_help=True)

PERSON = "person"  # owner of a skill that a person adds and that names no owner

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a skill.")]
Label = Annotated[str, typer.Argument(metavar="ID[@VERSION]", help="For example mail-tools@1.0.0.")]
Owner = Annotated[str, typer.Option(help="Owner, if the skill names none.")]
Version = Annotated[str | None, typer.Option(help="Version, if the skill names none.")]


@app.command(name="list")
def list_skills(as_json: AsJson = False) -> None:
    """List the registered skills."""
    registry = _open_registry()
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
    """Show one version of a skill: description, capabilities, and whether its files are unchanged."""
    from butlers.cli.skills_report import describe, print_description

    registry = _open_registry()
    name, version = _split_label(label)
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
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Folder of a skill, or a folder of skills."),
    ],
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed safely.")] = False,
    clients: Annotated[
        str,
        typer.Option(
            "--for", help="Also report how these clients load it, for example claude,codex."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Report every problem of the skills. Exits with 1 if one of them is an error."""
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
        Path | None, typer.Argument(metavar="[FOLDER]", help="Folder of a skill.")
    ] = None,
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Register the skills that ship with Butlers.")
    ] = False,
    owner: Owner = PERSON,
    version: Version = None,
) -> None:
    """Register a new skill."""
    if (folder is None) is not built_in:
        raise InvalidArguments(
            "name one folder, or use --built-in",
            hint="`butlers skills register FOLDER` or `butlers skills register --built-in`",
        )
    if folder is not None:
        _print_registered(_open_registry().register(_new_skill(folder, owner, version)))
        return
    from butlers.skills.registry.built_in import register_built_in

    for added in register_built_in(_open_registry()):
        _print_registered(added)


@app.command()
def update(folder: Folder, owner: Owner = PERSON, version: Version = None) -> None:
    """Add a version to a registered skill. Existing versions never change."""
    updated = _open_registry().update(_new_skill(folder, owner, version))
    print_line(f"updated {updated.id}: {', '.join(updated.versions)}")


@app.command()
def remove(label: Label) -> None:
    """Remove a skill, or one version of it. Refused while a butler uses it."""
    name, version = _split_label(label)
    _open_registry().delete(name, version)
    print_line(f"removed {label}")


@app.command()
def resolve(
    packs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PACK...]", help="For example mail-tools@^1; default: packs of --butler."
        ),
    ] = None,
    butler: Annotated[str | None, typer.Option(help="Butler to resolve for.")] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Write skills.lock into the butler's folder.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which versions a butler gets, dependencies first, or why they cannot be resolved."""
    from butlers.cli.skills_report import print_resolution
    from butlers.skills.registry.resolver import LOCK_FILE, read_lock, write_lock
    from butlers.skills.registry.resolver import resolve as resolve_packs

    config = _config_of(butler) if butler else None
    if config is None and (lock or not packs):
        raise InvalidArguments(
            "name packs or a butler",
            hint="`butlers skills resolve PACK...` or `butlers skills resolve --butler NAME`",
        )
    wanted = packs or (config.skills.packs if config else ())
    file = config.directory / LOCK_FILE if config else None
    locked = read_lock(file) if file else {}
    registry = _open_registry()
    catalog = registry.catalog()
    found = resolve_packs(catalog, butler or PERSON, wanted, locked)
    for pack in found.packs:  # raises if the files of a pack were changed
        registry.path(pack.id, pack.version, catalog)
    for warning in found.warnings:
        print_message("warning", str(warning))
    if lock and file:
        write_lock(file, found)
    if as_json:
        print_json({**found.as_dict(), "warnings": list(found.warnings)})
    else:
        print_resolution(found)


@app.command()
def run(
    label: Label,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="Path or name of the script.")],
    arguments: Annotated[
        str,
        typer.Argument(metavar="[JSON]", help="Object, or list of words; - reads standard input."),
    ] = "{}",
    butler: Annotated[
        str | None,
        typer.Option(help="Run as this butler, in its folder; default: as you, here."),
    ] = None,
    access: Annotated[Access, typer.Option(help="What the script may touch.")] = Access.WORKSPACE,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds until the script is stopped.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run a script of a registered skill. It gets those of your variables that it declares."""
    from butlers.cli.skills_report import ScriptCall, print_answer, run_script

    work = _config_of(butler).directory if butler else Path.cwd()
    call = ScriptCall(label, script, arguments, butler or PERSON, work, access, timeout_s)
    answer = run_script(_open_registry(), call)
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
        str | None, typer.Option(help="Commit, if the address does not name it.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Install without asking.")] = False,
    owner: Owner = PERSON,
    version: Version = None,
) -> None:
    """Install a skill from a folder, archive or git repository, after showing its capabilities."""
    from butlers.cli.skills_report import print_offer
    from butlers.skills.install.git import git_source
    from butlers.skills.install.install import RegistryInstaller

    def agrees(offer: InstallOffer) -> bool:
        if yes:
            return True
        return sys.stdin.isatty() and confirm(f"install {offer.skill.label}?")

    found = git_source(source, commit) or Path(source)
    installed = RegistryInstaller(_open_registry(), owner, version).install(
        found, agrees, print_offer
    )
    print_line(f"installed {installed.id}: {', '.join(installed.versions)}")


@app.command()
def approve(label: Label) -> None:
    """Approve a version that a butler made: every butler may use it and run its scripts."""
    registry = _open_registry()
    name, version = _split_label(label)
    release = registry.get(name).release(version)
    registry.approve(name, release.version)
    print_line(f"approved {name}@{release.version}")


@app.command()
def assign(
    label: Label, butler: Annotated[str, typer.Argument(help="Name of the butler.")]
) -> None:
    """Add a skill to the packs of a butler, from its next start on."""
    from butlers.skills.registry.butler_packs import assign as assign_skill

    done = assign_skill(_open_registry(), _config_of(butler), label)
    what = "now names" if done["changed"] else "already names"
    print_line(f"{done['file']} {what} {done['skill']}")


def _open_registry() -> SkillRegistry:
    from butlers.skills.registry.registry import SkillRegistry

    home = Settings.from_environ().home
    return SkillRegistry(home, lambda: _users().packs, unreadable=lambda: _users().unreadable)


@dataclass(frozen=True, slots=True)
class _Users:
    """Packs that each butler names or locks, and the errors of files that cannot be read."""

    packs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def _users() -> _Users:
    from butlers.config.packs import shipped_folder
    from butlers.config.roster import known_butlers

    settings = Settings.from_environ()
    home = settings.home
    fleet, roster = find_roster(settings, refresh=False)
    # The working copy of a shipped butler, its next content, and butlers in other folders.
    lasting = (shipped_folder(folder, home) for folder in roster)
    users, known = _Users(), tuple[Path, ...]()
    try:
        known = known_butlers(home)
    except OSError as error:
        users.unreadable.append(str(error))
    for folder in {path.resolve(): None for path in (*roster, *lasting, *known)}:
        try:
            name, packs = _named(folder, settings, fleet)
        except ConfigError as error:
            users.unreadable.append(error.message)
            name, packs = folder.name, ()
        users.packs[name] = (*users.packs.get(name, ()), *packs)
        try:
            users.packs[name] += _locked(folder)
        except SkillError as error:
            users.unreadable.append(error.message)
    return users


def _named(folder: Path, settings: Settings, fleet: FleetConfig) -> tuple[str, tuple[str, ...]]:
    """Return name and packs of a butler, also if its configuration is otherwise invalid."""
    from butlers.config.overrides import find_override
    from butlers.config.packs import packs_written

    try:
        config = load_butler(folder, settings, fleet)
    except ConfigError:
        return packs_written(folder, find_override(folder, settings.home))
    return config.name, tuple(config.skills.packs)


def _locked(folder: Path) -> tuple[str, ...]:
    from butlers.skills.registry.resolver import LOCK_FILE, read_lock

    return tuple(pack.label for pack in read_lock(folder / LOCK_FILE).values())


def _config_of(butler: str) -> ButlerConfig:
    _, loaded = load_roster(Settings.from_environ(), refresh=False)
    configs = {config.name: config for config in loaded}
    if butler not in configs:
        raise NotFound(
            f"there is no butler {butler!r}", hint=f"known butlers: {', '.join(configs)}"
        )
    return configs[butler]


def _new_skill(folder: Path, owner: str, version: str | None) -> NewSkill:
    from butlers.skills.registry.registry import NewSkill

    return NewSkill(folder, owner=owner, version=version)


def _split_label(label: str) -> tuple[str, str | None]:
    name, _at, version = label.partition("@")
    return name, version or None


def _drafts(entry: dict[str, Any]) -> list[str]:
    """Return the versions that no person has approved yet."""
    releases = entry["releases"].items()
    return [version for version, release in releases if release["state"] == "draft"]


def _print_registered(added: RegisteredSkill) -> None:
    print_line(f"registered {added.id}: {', '.join(added.versions)}")
