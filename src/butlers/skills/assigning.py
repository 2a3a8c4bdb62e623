"""Giving a butler a registered skill: its configuration names it from then on."""

from __future__ import annotations

from typing import Any

from butlers.config.butler import ButlerConfig
from butlers.config.known_butlers import remember_butler
from butlers.config.packs import name_pack, source_file
from butlers.domain.errors import SkillUnresolved
from butlers.skills.registry.catalogue import State
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import resolve
from butlers.skills.tree import translate_os_errors


def assign(registry: SkillRegistry, config: ButlerConfig, wanted: str) -> dict[str, Any]:
    """Refused, before anything is written, for what the butler could not load with all it has."""
    catalogue = registry.catalogue()
    name = wanted.partition("@")[0]
    others = [pack for pack in config.skills.packs if pack.partition("@")[0] != name]
    found = resolve(catalogue, config.name, [*others, wanted])
    given = next(pack for pack in found.packs if pack.id == name)
    label = given.label
    if catalogue.get(given.id).release(given.version).state is State.DRAFT:
        raise SkillUnresolved(
            f"{label} is a draft of {given.owner}, and is not given to a butler",
            hint=f"`butlers skills approve {label}` first",
        )
    with translate_os_errors(registry.home):  # else it could be removed while the butler uses it
        remember_butler(registry.home, config.directory)
    file = source_file(config.directory, registry.home)
    changed = name_pack(file, label)
    return {"skill": label, "butler": config.name, "file": str(file), "changed": changed}
