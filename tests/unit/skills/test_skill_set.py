"""The skill set of a butler: drafts, failures and new skills."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from butlers.domain.errors import SkillRegistryBroken
from butlers.skills.install.mount import AGENTS_FOLDER, CLAUDE_FOLDER
from butlers.skills.instructions import describe_scripts, list_files
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import LOCK_FILE
from butlers.skills.skill_set import ButlerSkillSet
from support.skills import write_files, write_pack, write_skill_md


@pytest.fixture
def registry(tmp_path: Path) -> SkillRegistry:
    return SkillRegistry(tmp_path / "home")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "butlers" / "mine"
    folder.mkdir(parents=True)
    return folder


def source(tmp_path: Path, version: str, **fields: object) -> Path:
    return write_pack(tmp_path / version / "w", id="w", version=version, owner="mine", **fields)


def with_draft(registry: SkillRegistry, tmp_path: Path) -> None:
    """Register w 1.0.0, approved, and w 1.1.0, a draft."""
    registry.register(NewSkill(source(tmp_path, "1.0.0")))
    registry.update(NewSkill(source(tmp_path, "1.1.0"), by="mine", state=SkillState.DRAFT))


@pytest.mark.parametrize("wanted", ["w", "w@^1", "w@1.0.0"])
def test_a_draft_does_not_replace_the_approved_version(
    registry: SkillRegistry, directory: Path, tmp_path: Path, wanted: str
) -> None:
    with_draft(registry, tmp_path)
    skill_set = ButlerSkillSet.open(registry, "mine", directory, [wanted])
    assert [(one.skill.label, one.draft) for one in skill_set.packs()] == [("w@1.0.0", False)]
    assert skill_set.find("w@1.1.0").draft


def test_draft_in_its_makers_configuration_stays_a_draft_until_approved(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    skill_set = ButlerSkillSet.open(registry, "mine", directory, ["w@1.1.0"])
    assert [(one.skill.label, one.draft) for one in skill_set.packs()] == [("w@1.1.0", True)]
    assert skill_set.find("w").draft
    registry.approve("w", "1.1.0")
    assert not skill_set.find("w").draft


def test_a_new_draft_does_not_hide_the_makers_approved_version(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    skill_set = ButlerSkillSet.open(registry, "mine", directory, [])
    assert [(one.skill.label, one.draft) for one in skill_set.skills()] == [("w@1.0.0", False)]
    assert skill_set.find("w").skill.version == "1.0.0"
    assert skill_set.find("w@1.1.0").draft
    assert [one.skill.label for one in skill_set.skills_and_drafts()] == ["w@1.0.0", "w@1.1.0"]
    registry.approve("w", "1.1.0")
    assert [(one.skill.label, one.draft) for one in skill_set.skills_and_drafts()] == [
        ("w@1.1.0", False)
    ]


def test_broken_registry_is_reported_and_keeps_own_skills(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    write_skill_md(directory / "skills" / "own", "name: own\ndescription: x\n")
    skill_set = ButlerSkillSet.open(registry, "mine", directory, [])
    assert skill_set.failed() == ()
    registry.file.write_text("not JSON")
    with capture_logs() as log:
        assert [one.name for one in skill_set.skills_and_drafts()] == ["own"]
        folders = skill_set.mount(tmp_path / "session")
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [["own"], ["own"]]
    assert {line["event"] for line in log} == {"skills made by the butler are unavailable"}
    (failed,) = skill_set.failed()
    assert (failed.wanted, failed.error.code) == (
        "skills that this butler made",
        "skill_registry_broken",
    )
    assert skill_set.find("own").name == "own"
    with pytest.raises(SkillRegistryBroken):
        skill_set.find("w")


def test_pack_with_too_many_dependencies_fails_alone(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    many = [f"p{n}@1.0.0" for n in range(1_200)]
    registry.register(NewSkill(source(tmp_path, "1.0.0", dependencies=many)))
    fine = write_pack(tmp_path / "fine", id="fine", version="1.0.0", owner="me")
    registry.register(NewSkill(fine))
    skill_set = ButlerSkillSet.open(registry, "mine", directory, ["w@1.0.0", "fine@1.0.0"])
    assert [one.name for one in skill_set.packs()] == ["fine"]
    (failed,) = skill_set.load_result.failed
    assert (failed.wanted, failed.error.code) == ("w@1.0.0", "skill_unresolved")


def test_unreadable_lock_fails_the_packs_and_not_the_start(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    (directory / LOCK_FILE).mkdir()
    skill_set = ButlerSkillSet.open(registry, "mine", directory, ["w@1.0.0"])
    assert [failed.wanted for failed in skill_set.load_result.failed] == ["w@1.0.0"]


def test_skill_that_cannot_be_copied_is_skipped(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    for name in ("bad", "good"):
        write_skill_md(directory / "skills" / name, f"name: {name}\ndescription: x\n")
    (tmp_path / "key").write_text("PRIVATE")
    (directory / "skills" / "bad" / "key.md").symlink_to(tmp_path / "key")
    with capture_logs() as log:
        folders = ButlerSkillSet(registry, "mine", directory).mount(tmp_path / "session")
    assert folders == (tmp_path / "session" / CLAUDE_FOLDER, tmp_path / "session" / AGENTS_FOLDER)
    for folder in folders:
        assert [path.name for path in folder.iterdir()] == ["good"]
    assert {(line["event"], line["skill"]) for line in log} == {("skill not mounted", "bad")}


def test_file_with_an_undecodable_name_is_not_listed(
    registry: SkillRegistry, directory: Path
) -> None:
    folder = write_skill_md(directory / "skills" / "own", "name: own\ndescription: x\n")
    write_files(folder, {"scripts/a.sh": "", os.fsdecode(b"scripts/\xff.sh"): ""})
    (own,) = ButlerSkillSet(registry, "mine", directory).skills()
    assert list_files(own.pack) == ["SKILL.md", "scripts/a.sh"]
    assert list(describe_scripts(own.pack)) == ["scripts/a.sh"]


def test_skill_tools_need_a_skills_folder(registry: SkillRegistry, directory: Path) -> None:
    skill_set = ButlerSkillSet(registry, "mine", directory)
    assert not skill_set.needs_tools
    (directory / "skills").mkdir()
    assert skill_set.needs_tools
    write_files(directory / "skills" / "bench", {"reflex.toml": ""})
    assert not skill_set.needs_tools  # the folder holds only reflexes
    skill_set.custom.mkdir()
    assert skill_set.needs_tools
