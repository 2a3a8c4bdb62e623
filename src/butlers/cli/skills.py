"""``butlers skills``: check, register, resolve, install and run skills. No database is needed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.fleet import load_roster
from butlers.cli.output import AsJson, confirm, print_json, print_line, print_message, print_table
from butlers.cli.skill_users import open_registry
from butlers.config.settings import Settings
from butlers.domain.errors import (
    InvalidArguments,
    NotFound,
    SkillConsentMissing,
    SkillNotFound,
)
from butlers.domain.session import Access

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.skills.registry.catalog import RegisteredSkill
    from butlers.skills.registry.new_skill import NewSkill

app = typer.Typer(help="Check, register, resolve, install and run skills.", no_args_is_help=True)

PERSON = "person"  # owner of a skill that a person adds and that names no owner

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a skill.")]
Label = Annotated[str, typer.Argument(metavar="ID[@VERSION]", help="For example mail-tools@1.0.0.")]
Owner = Annotated[str, typer.Option(help="Owner, if the skill names none.")]
Version = Annotated[str | None, typer.Option(help="Version, if the skill names none.")]


@app.command(name="list")
def list_skills(as_json: AsJson = False) -> None:
    """List the registered skills."""
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
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="Words to look for.")],
    inside: Annotated[
        list[Path] | None,
        typer.Option(
            "--in", metavar="FOLDER", help="Also search this local collection; repeatable."
        ),
    ] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Read the collections again.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Skills to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Search registered skills and the collections that were searched before, without a network."""
    from butlers.cli.skills_search import search_skills

    found = search_skills(open_registry(), words, inside or [], limit, again=refresh)
    if as_json:
        print_json([one.as_dict() for one in found])
        return
    print_table(
        ("skill", "description", "from"),
        [[one.label, one.description[:80], one.source] for one in found],
    )


@app.command()
def show(label: Label, as_json: AsJson = False) -> None:
    """Show one version of a skill: description, capabilities, and whether its files are unchanged."""
    from butlers.cli.skills_report import describe, print_description

    registry = open_registry()
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
        from butlers.cli.skills_report import warn_of_cycle

        registry = open_registry()
        added = registry.register(_new_skill(folder, owner, version))
        _print_registered(added)
        warn_of_cycle(registry, added.id)
        return
    from butlers.skills.registry.built_in import register_built_in

    for added in register_built_in(open_registry()):
        _print_registered(added)


@app.command()
def update(folder: Folder, owner: Owner = PERSON, version: Version = None) -> None:
    """Add a version to a registered skill. Existing versions never change."""
    from butlers.cli.skills_report import print_permissions, warn_of_cycle
    from butlers.skills.install.install import compare

    registry = open_registry()
    with registry.staged(_new_skill(folder, owner, version)) as staged:
        compared = compare(registry, staged)
        print_permissions(compared.permissions, compared.before)
        updated = registry.add(staged, update=True)
    print_line(f"updated {updated.id}: {', '.join(updated.versions)}")
    warn_of_cycle(registry, updated.id)


@app.command()
def remove(label: Label) -> None:
    """Remove a skill, or one version of it. Refused while a butler uses it."""
    name, version = _split_label(label)
    open_registry().delete(name, version)
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
    registry = open_registry()
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
    answer = run_script(open_registry(), call)
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
            help="A folder, a .zip, a .tar.gz, https://host/repository[@COMMIT][#subdirectory=FOLDER],"
            " or mcp+https://host/mcp.",
        ),
    ],
    commit: Annotated[
        str | None, typer.Option(help="Commit; default: the newest of the default branch.")
    ] = None,
    skill: Annotated[
        list[str] | None,
        typer.Option("--skill", metavar="NAME", help="Name or folder in a collection; repeatable."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Install every skill of a collection.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Install without asking.")] = False,
    name: Annotated[str | None, typer.Option(help="Install it under this name.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME", help="Variable to declare in addition; repeatable."),
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option(help="Home of the fleet whose butler mcp+http://… names.")
    ] = None,
    owner: Owner = PERSON,
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Install skills from a folder, archive, git repository or MCP server, after showing what they may do."""
    from butlers.cli.skills_install import SkillChoice, install_from, signed_in
    from butlers.skills.install.git import git_source
    from butlers.skills.install.install import RegistryInstaller
    from butlers.skills.install.mcp_source import mcp_source

    registry = open_registry()
    installer = RegistryInstaller(registry, owner, version, name, tuple(env or ()))
    choice = SkillChoice(tuple(skill or ()), everything, yes, as_json)
    address = mcp_source(source) or git_source(source, commit) or Path(source)
    if not install_from(installer, signed_in(address, fleet, registry.home), choice):
        raise typer.Exit(1)


@app.command()
def approve(label: Label) -> None:
    """Approve a version that a butler made: every butler may use it and run its scripts."""
    registry = open_registry()
    name, version = _split_label(label)
    release = registry.get(name).release(version)
    registry.approve(name, release.version)
    print_line(f"approved {name}@{release.version}")


@app.command()
def trust(
    skill: Annotated[
        str, typer.Argument(help="Folder name of a skill of the butler's own folder.")
    ],
    butler: Annotated[str, typer.Argument(help="Name of the butler.")],
    yes: Annotated[bool, typer.Option("--yes", help="Agree without asking.")] = False,
) -> None:
    """Let an own skill of a butler use the secrets and the network that it declares, until it changes."""
    from butlers.cli.skills_report import print_capabilities
    from butlers.skills.registry.own_skills import agree
    from butlers.skills.skill_set import ButlerSkillSet, SkillOrigin

    registry, config = open_registry(), _config_of(butler)
    skill_set = ButlerSkillSet(registry, config.name, config.directory)
    found = skill_set.find(skill)
    if found.origin is not SkillOrigin.OWN:
        raise SkillNotFound(
            f"{found.skill.label} is registered",
            hint="only skills of a butler's own folder need this",
        )
    print_capabilities(found.pack)
    if not yes and not (sys.stdin.isatty() and confirm(f"trust {found.pack.folder.name}?")):
        raise SkillConsentMissing("nothing was recorded", hint="add --yes if you agree")
    digest = agree(registry.home, config.name, found.pack.folder, skill_set.shared)
    print_line(f"trusted {found.pack.folder.name} of {config.name}: {digest}")


@app.command()
def grant(
    label: Label,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Variables, such as API_KEY.")
    ],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take them back instead.")] = False,
) -> None:
    """Give a skill variables that it does not declare, from the next start of its butlers on."""
    from butlers.skills.registry.adopt import require_variable

    for name in names:
        require_variable(name)
    registry = open_registry()
    skill, version = _split_label(label)
    before = registry.get(skill).release(version)
    kept = [name for name in before.granted if name not in names]
    release = registry.grant(skill, before.version, kept if revoke else [*kept, *names])
    given = ", ".join(release.granted) or "no variable beside those that it declares"
    print_line(f"{skill}@{release.version} is given {given}")
    if not revoke:
        print_message("hint", f"`butlers secrets set {shlex.quote(names[0])}` stores a value")


@app.command()
def assign(
    label: Label, butler: Annotated[str, typer.Argument(help="Name of the butler.")]
) -> None:
    """Add a skill to the packs of a butler, from its next start on."""
    from butlers.skills.registry.butler_packs import assign as assign_skill

    done = assign_skill(open_registry(), _config_of(butler), label)
    what = "now names" if done["changed"] else "already names"
    print_line(f"{done['file']} {what} {done['skill']}")


def _config_of(butler: str) -> ButlerConfig:
    _, loaded = load_roster(Settings.from_environ(), refresh=False)
    configs = {config.name: config for config in loaded}
    if butler not in configs:
        raise NotFound(
            f"there is no butler {butler!r}", hint=f"known butlers: {', '.join(configs)}"
        )
    return configs[butler]


def _new_skill(folder: Path, owner: str, version: str | None) -> NewSkill:
    from butlers.skills.registry.new_skill import NewSkill

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
