"""What a configuration names is loaded as far as it can be had, and the rest is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from butlers.skills.registry.butler_packs import load_packs
from butlers.skills.registry.registry import NewSkill, SkillRegistry
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


def test_each_comes_after_what_it_needs(tmp_path: Path) -> None:
    registry = registry_with(tmp_path, pack("base"), pack("middle", "1.0.0", "base@^1"))
    loading = load_packs(registry, "mine", ["middle@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@1.0.0", "middle@1.0.0"]
    assert (loading.failed, loading.warnings) == ((), ())


def test_a_conflict_fails_the_later_one_alone(tmp_path: Path) -> None:
    registry = registry_with(
        tmp_path, pack("base"), pack("base", "2.0.0"), pack("old", "1.0.0", "base@1.0.0")
    )
    loading = load_packs(registry, "mine", ["base@2.0.0", "old@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@2.0.0"]
    assert [(failed.wanted, failed.error.code) for failed in loading.failed] == [
        ("old@1.0.0", "skill_conflict")
    ]


def test_what_can_not_be_read_as_a_requirement_is_told(tmp_path: Path) -> None:
    registry = registry_with(tmp_path, pack("base"))
    loading = load_packs(registry, "mine", ["base@", "Not an id", "base@1.0.0"])
    assert [loaded.label for loaded in loading.packs] == ["base@1.0.0"]
    assert [failed.wanted for failed in loading.failed] == ["base@", "Not an id"]


def test_nothing_asked_for_reads_nothing(tmp_path: Path) -> None:
    registry = SkillRegistry(tmp_path / "home")
    registry.file.parent.mkdir(parents=True)
    registry.file.write_text("{")
    assert load_packs(registry, "mine", []).packs == ()
