"""``butlers skills approve`` and ``assign``: a person's word on what butlers have made."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.skills_home import config_of, open_registry, split_label

Label = Annotated[str, typer.Argument(metavar="ID[@VERSION]", help="Such as weekly-reports@1.0.0.")]


def approve(label: Label) -> None:
    """Let every butler use a version that a butler has made, and let its scripts run."""
    registry = open_registry()
    name, version = split_label(label)
    release = registry.get(name).release(version)
    registry.approve(name, release.version)
    typer.echo(f"approved {name}@{release.version}")


def assign(label: Label, butler: Annotated[str, typer.Argument(help="Who is to have it.")]) -> None:
    """Name a skill among a butler's packs. It has it from its next start on."""
    from butlers.skills.assigning import assign as assign_skill

    done = assign_skill(open_registry(), config_of(butler), label)
    what = "now names" if done["changed"] else "names already"
    typer.echo(f"{done['file']} {what} {done['skill']}")
