"""The registry of skills: its file, its owners, and versions that never change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.errors import (
    InvalidSkill,
    SkillChanged,
    SkillError,
    SkillInUse,
    SkillNotFound,
    SkillOwnerMismatch,
    SkillPathRefused,
    SkillRegistryBroken,
    SkillTaken,
    SkillVersionTaken,
)
from butlers.skills.check.rules import check
from butlers.skills.reader import read_skill
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill, require_label
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import dependency_cycle
from butlers.skills.skill import SkillSpec
from support.skills import write_files, write_pack, write_skill_md

START = datetime(2026, 1, 15, 10, tzinfo=UTC)


class StepClock:
    """Clock that advances one minute per reading."""

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return START + timedelta(minutes=self.looks - 1)

    def monotonic(self) -> float:
        return float(self.looks)


@pytest.fixture
def packs() -> dict[str, list[str]]:
    return {}


@pytest.fixture
def registry(tmp_path: Path, packs: dict[str, list[str]]) -> SkillRegistry:
    def named() -> Mapping[str, Sequence[str]]:
        return packs

    return SkillRegistry(tmp_path / "home", named, StepClock())


def pack(tmp_path: Path, version: str = "1.0.0", text: str = "# How\n", **fields: Any) -> NewSkill:
    name = str(fields.get("id", "social-media"))
    folder = write_pack(
        tmp_path / "sources" / version / name,
        {"context/a.md": text},
        version=version,
        context=["context/a.md"],
        **fields,
    )
    return NewSkill(folder)


def entries(registry: SkillRegistry) -> list[dict[str, Any]]:
    found = json.loads(registry.file.read_text())["skills"]
    assert isinstance(found, list)
    return found


@pytest.mark.scenario("S003-13")
def test_the_file_lists_every_field_and_the_hash_and_state(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    packs["health"] = ["social-media@^1"]
    registry.register(pack(tmp_path))
    registry.update(pack(tmp_path, "2.1.0"))
    registry.update(pack(tmp_path, "1.5.0"))
    assert registry.file == registry.home / "registry" / "skills.json"
    [entry] = entries(registry)
    releases = entry.pop("releases")
    assert entry == {
        "id": "social-media",
        "versions": ["2.1.0", "1.5.0", "1.0.0"],
        "latestVersion": "2.1.0",
        "owner": "built-in",
        "usedBy": ["health"],
        "registeredAt": "2026-01-15T10:00:00Z",
        "updatedAt": "2026-01-15T10:02:00Z",
    }
    assert [release["state"] for release in releases.values()] == ["approved"] * 3
    assert all(release["hash"].startswith("sha256:") for release in releases.values())


@pytest.mark.scenario("S003-14")
def test_list_returns_all_registered_skills(registry: SkillRegistry, tmp_path: Path) -> None:
    assert registry.list() == ()
    registry.register(pack(tmp_path, id="b"))
    registry.register(pack(tmp_path, id="a"))
    assert [skill.id for skill in registry.list()] == ["a", "b"]


@pytest.mark.scenario("S003-15")
def test_get_returns_one_skill_by_id(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path))
    assert registry.get("social-media").versions == ("1.0.0",)
    with pytest.raises(SkillNotFound):
        registry.get("other")


@pytest.mark.scenario("S003-16")
def test_register_adds_a_new_skill(registry: SkillRegistry, tmp_path: Path) -> None:
    added = registry.register(pack(tmp_path))
    assert registry.list() == (added,)
    place = registry.home / "skills" / "built-in" / "social-media@1.0.0"
    assert (place / "context" / "a.md").read_text() == "# How\n"
    registry.register(pack(tmp_path, id="mine", owner="health"))
    assert (registry.home / "skills" / "custom" / "mine@1.0.0" / "manifest.json").is_file()
    assert list((registry.home / "skills" / ".staging").iterdir()) == []
    with pytest.raises(SkillTaken):
        registry.register(pack(tmp_path, "2.0.0"))


@pytest.mark.scenario("S003-17")
def test_update_adds_a_new_version_of_an_existing_skill(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    with pytest.raises(SkillNotFound):
        registry.update(pack(tmp_path))
    registry.register(pack(tmp_path))
    updated = registry.update(pack(tmp_path, "1.1.0"))
    assert updated.versions == ("1.1.0", "1.0.0")
    assert updated.latest == "1.1.0"


@pytest.mark.scenario("S003-18")
def test_delete_removes_a_skill_and_fails_while_a_butler_uses_it(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    registry.register(pack(tmp_path))
    packs |= {"health": ["social-media@1.0.0"], "finance": ["social-media"], "other": ["x"]}
    with pytest.raises(SkillInUse, match="used by finance, health"):
        registry.delete("social-media")
    assert registry.usage().butlers("social-media") == ("finance", "health")
    assert registry.path("social-media", "1.0.0").is_dir()
    packs.clear()
    registry.delete("social-media")
    assert registry.list() == ()
    assert not (registry.home / "skills" / "built-in" / "social-media@1.0.0").exists()
    with pytest.raises(SkillNotFound):
        registry.delete("social-media")


@pytest.mark.scenario("S003-38")
def test_versions_are_kept_side_by_side(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path, "1.0.0", "one"))
    registry.update(pack(tmp_path, "2.0.0", "two"))
    paths = [registry.path("social-media", version) for version in ("1.0.0", "2.0.0")]
    assert [(path / "context/a.md").read_text() for path in paths] == ["one", "two"]
    assert registry.get("social-media").versions == ("2.0.0", "1.0.0")


def test_version_is_deleted_unless_a_butler_would_load_it(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    registry.register(pack(tmp_path, "1.0.0"))
    registry.update(pack(tmp_path, "1.1.0"))
    packs["health"] = ["social-media@^1"]
    with pytest.raises(SkillInUse, match=r"social-media@1\.1\.0 is used by health"):
        registry.delete("social-media", "1.1.0")
    registry.delete("social-media", "1.0.0")
    assert registry.get("social-media").versions == ("1.1.0",)
    with pytest.raises(SkillNotFound):
        registry.delete("social-media", "9.9.9")


def test_a_skill_is_not_deleted_while_a_butler_names_any_version_of_it(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    registry.register(pack(tmp_path))
    packs["health"] = ["social-media@9.9.9"]
    with pytest.raises(SkillInUse, match="used by health"):
        registry.delete("social-media")


def test_dependency_of_another_skill_is_not_deleted(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    registry.register(pack(tmp_path, id="base"))
    registry.register(pack(tmp_path, id="upper", dependencies=["base@1.0.0"]))
    with pytest.raises(SkillInUse, match=r"used by upper@1\.0\.0"):
        registry.delete("base")
    registry.delete("upper")
    registry.delete("base")


@pytest.mark.scenario("S003-19")
def test_id_and_version_are_mapped_to_a_path(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path))
    path = registry.path("social-media", "1.0.0")
    assert path == registry.home / "skills" / "built-in" / "social-media@1.0.0"
    assert read_skill(path).skill.label == "social-media@1.0.0"  # type: ignore[union-attr]
    with pytest.raises(SkillNotFound):
        registry.path("social-media", "1.0.1")


@pytest.mark.scenario("S003-05")
def test_registry_fields_are_filled_by_the_registry_and_never_by_a_manifest(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    packs["health"] = ["social-media"]
    fields = {"usedBy": ["evil"], "registeredAt": "1999-01-01", "updatedAt": "1999-01-01"}
    registry.register(pack(tmp_path, **fields))
    [entry] = entries(registry)
    assert entry["usedBy"] == ["health"]
    assert entry["registeredAt"] == entry["updatedAt"] == "2026-01-15T10:00:00Z"


def test_the_same_content_again_changes_nothing(registry: SkillRegistry, tmp_path: Path) -> None:
    first = registry.register(pack(tmp_path))
    before = registry.file.read_bytes()
    assert registry.register(pack(tmp_path)) == first
    assert registry.update(pack(tmp_path)) == first
    assert registry.file.read_bytes() == before


def test_registering_the_same_content_restores_damaged_files(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    registry.register(pack(tmp_path))
    file = registry.path("social-media", "1.0.0") / "context" / "a.md"
    file.chmod(0o644)
    file.write_text("# Hox\n")
    before = registry.file.read_bytes()
    registry.register(pack(tmp_path))
    assert (registry.path("social-media", "1.0.0") / "context/a.md").read_text() == "# How\n"
    assert registry.file.read_bytes() == before


def test_a_registered_version_is_not_overwritten(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path))
    for add in (registry.register, registry.update):
        with pytest.raises(SkillVersionTaken):
            add(pack(tmp_path, text="# Evil\n"))
    assert (registry.path("social-media", "1.0.0") / "context/a.md").read_text() == "# How\n"


def test_other_owner_cannot_publish(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path, owner="finance"))
    with pytest.raises(SkillOwnerMismatch, match="belongs to finance"):
        registry.update(pack(tmp_path, "2.0.0", owner="health"))
    mine = NewSkill(pack(tmp_path, "2.0.0", owner="finance").folder, by="health")
    with pytest.raises(SkillOwnerMismatch):
        registry.update(mine)
    with pytest.raises(SkillOwnerMismatch):
        registry.register(NewSkill(pack(tmp_path, id="new", owner="built-in").folder, by="health"))
    assert registry.get("social-media").versions == ("1.0.0",)


def test_many_warnings_do_not_hide_an_error(registry: SkillRegistry, tmp_path: Path) -> None:
    folder = tmp_path / "sources" / "escape"
    twice = ", ".join(f'"k{n}": 1, "k{n}": 2' for n in range(150))
    required = '"name": "E", "version": "1.0.0", "description": "x", "owner": "me"'
    write_files(
        folder, {"manifest.json": f'{{"id": "../../../escaped", {required}, "x": {{{twice}}}}}'}
    )
    checked = check(folder)
    assert not checked.valid
    assert [found.code for found in checked.errors] == ["manifest-id"]
    assert len(checked.diagnostics) < 150
    with pytest.raises(InvalidSkill):
        registry.register(NewSkill(folder))
    assert not list(tmp_path.glob("**/escaped*"))
    assert registry.list() == ()


@pytest.mark.parametrize(("name", "version"), [("../../escaped", "1.0.0"), ("fine", "../../1.0.0")])
def test_registry_refuses_ids_and_versions_that_change_the_path(name: str, version: str) -> None:
    with pytest.raises(InvalidSkill, match="is not a valid skill"):
        require_label(SkillSpec(name=name, description="x", version=version))


def test_a_version_in_use_is_kept_while_only_a_draft_is_newer(
    registry: SkillRegistry, tmp_path: Path, packs: dict[str, list[str]]
) -> None:
    registry.register(pack(tmp_path, "1.0.0"))
    registry.register(pack(tmp_path, id="user", dependencies=["social-media@^1"]))
    newer = replace(pack(tmp_path, "1.1.0"), state=SkillState.DRAFT)
    registry.update(newer)
    with pytest.raises(SkillInUse, match=r"user@1\.0\.0"):
        registry.delete("social-media", "1.0.0")
    registry.delete("user")
    packs["mine"] = ["social-media@^1"]
    with pytest.raises(SkillInUse, match="mine"):
        registry.delete("social-media", "1.0.0")
    packs["mine"] = ["social-media@1.1.0"]
    with pytest.raises(SkillInUse, match="mine"):
        registry.delete("social-media", "1.1.0")
    packs["mine"] = ["social-media"]
    registry.delete("social-media", "1.1.0")
    assert registry.get("social-media").versions == ("1.0.0",)


def test_approval_keeps_the_content(registry: SkillRegistry, tmp_path: Path) -> None:
    folder = pack(tmp_path, owner="health").folder
    made = registry.register(NewSkill(folder, by="health", state=SkillState.DRAFT))
    assert made.release("1.0.0").state is SkillState.DRAFT
    assert registry.approve("social-media", "1.0.0").release("1.0.0").state is SkillState.APPROVED
    assert registry.get("social-media").release("1.0.0").state is SkillState.APPROVED


def test_content_changed_on_disk_is_refused_at_use_and_at_approval(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    registry.register(NewSkill(pack(tmp_path, owner="health").folder, state=SkillState.DRAFT))
    file = registry.path("social-media", "1.0.0") / "context" / "a.md"
    file.chmod(0o644)
    file.write_text("# Hox\n")
    for attempt in (registry.path, registry.approve):
        with pytest.raises(SkillChanged) as error:
            attempt("social-media", "1.0.0")
        assert error.value.code == "skill_changed"
    assert registry.get("social-media").release("1.0.0").state is SkillState.DRAFT
    shutil.rmtree(file.parent.parent)
    with pytest.raises(SkillChanged):
        registry.path("social-media", "1.0.0")


def test_registered_files_are_read_only_and_keep_their_executable_bit(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    folder = write_pack(tmp_path / "s", {"scripts/a.sh": "#!/bin/sh\n"}, scripts=["scripts/a.sh"])
    registry.register(NewSkill(folder))
    place = registry.path("social-media", "2.1.0")
    assert (place / "scripts/a.sh").stat().st_mode & 0o777 == 0o555
    assert (place / "manifest.json").stat().st_mode & 0o777 == 0o444


def test_an_invalid_pack_is_refused_with_all_errors_and_leaves_nothing(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    folder = write_pack(tmp_path / "bad", id="../../evil", version="x", context=["gone.md"])
    with pytest.raises(InvalidSkill) as error:
        registry.register(NewSkill(folder))
    codes = [found.code for found in error.value.diagnostics]
    assert codes == ["manifest-id", "manifest-version", "manifest-context-missing"]
    assert all(found.file.is_relative_to(folder) for found in error.value.diagnostics)
    assert registry.list() == ()
    assert not (registry.home / "skills" / "custom").exists()


def test_a_skill_md_becomes_a_pack_with_version_and_owner(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    folder = write_skill_md(tmp_path / "log-weight", "description: Logs weight.\nversion: 1.2.0\n")
    registry.register(NewSkill(folder, owner="me"))
    skill = read_skill(registry.path("log-weight", "1.2.0")).skill
    assert skill is not None
    assert (skill.name, skill.version, skill.owner) == ("log-weight", "1.2.0", "me")
    plain = write_files(tmp_path / "plain", {"SKILL.md": "Says what.\n"})
    assert registry.register(NewSkill(plain, owner="me", version="0.1.0")).latest == "0.1.0"


def test_a_link_out_of_the_skill_is_refused_by_name(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    new = pack(tmp_path)
    (new.folder / "example.pem").symlink_to(tmp_path / "id_rsa")
    with pytest.raises(SkillPathRefused, match=r"example\.pem"):
        registry.register(new)
    assert registry.list() == ()


def test_links_inside_are_copied_as_files_and_leftovers_are_not(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    new = pack(tmp_path)
    (new.folder / "same.md").symlink_to("context/a.md")
    write_files(new.folder, {".git/config": "x", "context/__pycache__/a.pyc": "x"})
    registry.register(new)
    place = registry.path("social-media", "1.0.0")
    assert not (place / "same.md").is_symlink()
    assert sorted(path.name for path in place.rglob("*")) == [
        "a.md",
        "context",
        "manifest.json",
        "same.md",
    ]


def test_special_files_are_refused(registry: SkillRegistry, tmp_path: Path) -> None:
    new = pack(tmp_path)
    os.mkfifo(new.folder / "pipe")
    with pytest.raises(SkillPathRefused):
        registry.register(new)


def test_leftover_of_a_crash_before_the_write_is_replaced(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    write_files(registry.home / "skills" / "built-in" / "social-media@1.0.0", {"half": "x"})
    registry.register(pack(tmp_path))
    assert not (registry.path("social-media", "1.0.0") / "half").exists()


def test_only_abandoned_staging_folders_are_removed(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    staging = registry.home / "skills" / ".staging"
    for name in ("dead", "alive"):
        write_files(staging / name, {"x/SKILL.md": "half"})
    os.utime(staging / "dead", (1_000_000_000, 1_000_000_000))
    registry.register(pack(tmp_path))
    assert [path.name for path in staging.iterdir()] == ["alive"]


def test_unwritable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    registry = SkillRegistry(tmp_path / "home")
    with pytest.raises(SkillError, match="home") as error:
        registry.register(pack(tmp_path))
    assert error.value.hint is not None
    with pytest.raises(SkillError):
        registry.list()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"skills": [{"id": "../x", "releases": {}}]}', '{"skills": [{"id": "a"}]}'],
)
def test_broken_registry_file_is_reported_and_kept(
    registry: SkillRegistry, tmp_path: Path, content: str
) -> None:
    registry.file.parent.mkdir(parents=True)
    registry.file.write_text(content)
    with pytest.raises(SkillRegistryBroken, match=r"skills\.json"):
        registry.list()
    with pytest.raises(SkillRegistryBroken):
        registry.register(pack(tmp_path))
    assert registry.file.read_text() == content


def test_missing_folder_is_an_error(registry: SkillRegistry, tmp_path: Path) -> None:
    with pytest.raises(SkillError, match="gone"):
        registry.register(NewSkill(tmp_path / "gone"))


def test_packs_in_a_cycle_can_be_removed(registry: SkillRegistry, tmp_path: Path) -> None:
    registry.register(pack(tmp_path, id="one", dependencies=["two"]))
    registry.register(pack(tmp_path, id="two", dependencies=["three"]))
    registry.register(pack(tmp_path, id="three", dependencies=["one"]))
    registry.register(pack(tmp_path, id="user", dependencies=["one"]))
    assert dependency_cycle(registry.catalog(), "one") == ("one", "two", "three", "one")
    assert dependency_cycle(registry.catalog(), "user") == ()
    with pytest.raises(SkillInUse, match="user"):
        registry.delete("one")
    registry.delete("user")
    for name in ("one", "two", "three"):
        registry.delete(name)
    assert registry.list() == ()
