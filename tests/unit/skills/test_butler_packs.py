"""Packs of a configuration: loaded as far as possible, failures reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from butlers.skills.registry.butler_packs import load_packs
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from support.skills import write_pack


def registry_with(root: Path, *packs: dict[str, Any]) -> SkillRegistry:
    registry = SkillRegistry(root / "home")
    for fields in packs:
        folder = write_pack(
            root / "sources" / fields["version"] / fields["id"], owner="me", **fields
        )
        known = fields["id"] in registry.catalog().skills
        (registry.update if known else registry.register)(NewSkill(folder))
    return registry


def pack(name: str, version: str = "1.0.0", *dependencies: str) -> dict[str, Any]:
    return {"id": name, "version": version, "dependencies": list(dependencies)}


def test_packs_follow_their_dependencies(tmp_path: Path) -> None:
    registry = registry_with(tmp_path, pack("base"), pack("middle", "1.0.0", "base@^1"))
    loading = load_packs(registry, "mine", ["middle@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@1.0.0", "middle@1.0.0"]
    assert (loading.failed, loading.warnings) == ((), ())


def test_conflict_fails_only_the_later_pack(tmp_path: Path) -> None:
    registry = registry_with(
        tmp_path, pack("base"), pack("base", "2.0.0"), pack("old", "1.0.0", "base@1.0.0")
    )
    loading = load_packs(registry, "mine", ["base@2.0.0", "old@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@2.0.0"]
    assert [(failed.wanted, failed.error.code) for failed in loading.failed] == [
        ("old@1.0.0", "skill_conflict")
    ]


def test_invalid_requirement_is_reported(tmp_path: Path) -> None:
    registry = registry_with(tmp_path, pack("base"))
    loading = load_packs(registry, "mine", ["base@", "Not an id", "base@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@1.0.0"]
    assert [failed.wanted for failed in loading.failed] == ["base@", "Not an id"]


def test_no_requirements_do_not_read_the_registry(tmp_path: Path) -> None:
    registry = SkillRegistry(tmp_path / "home")
    registry.file.parent.mkdir(parents=True)
    registry.file.write_text("{")
    assert load_packs(registry, "mine", []).packs == ()
