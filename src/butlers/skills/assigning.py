"""Giving a butler a registered skill: its configuration names it from then on."""

from __future__ import annotations

from typing import Any

from butlers.config.butler import ButlerConfig
from butlers.config.packs import name_pack, source_file
from butlers.skills.registry import SkillRegistry
from butlers.skills.resolver import resolve


def assign(registry: SkillRegistry, config: ButlerConfig, wanted: str) -> dict[str, Any]:
    """Refused, before anything is written, for what the butler could not load with all it has."""
    catalogue = registry.catalogue()
    name = wanted.partition("@")[0]
    others = [pack for pack in config.skills.packs if pack.partition("@")[0] != name]
    found = resolve(catalogue, config.name, [*others, wanted])
    label = next(pack.label for pack in found.packs if pack.id == name)
    file = source_file(config, registry.home)
    changed = name_pack(file, label)
    return {"skill": label, "butler": config.name, "file": str(file), "changed": changed}
