"""What one butler has: drafts stay drafts, one bad skill takes no other along, and room for new ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from butlers.domain.errors import SkillRegistryBroken
from butlers.skills.install.mount import AGENTS_FOLDER, CLAUDE_FOLDER
from butlers.skills.instructions import describe_scripts, list_files
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.registry import NewSkill, SkillRegistry
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
    """w 1.0.0, approved, and 1.1.0, which its maker has made since."""
    registry.register(NewSkill(source(tmp_path, "1.0.0")))
    registry.update(NewSkill(source(tmp_path, "1.1.0"), by="mine", state=SkillState.DRAFT))


@pytest.mark.parametrize("wanted", ["w", "w@^1", "w@1.0.0"])
def test_a_draft_does_not_replace_the_approved_version(
    registry: SkillRegistry, directory: Path, tmp_path: Path, wanted: str
) -> None:
    with_draft(registry, tmp_path)
    shelf = ButlerSkillSet.open(registry, "mine", directory, [wanted])
    assert [(one.skill.label, one.draft) for one in shelf.packs()] == [("w@1.0.0", False)]
    assert shelf.find("w@1.1.0").draft


def test_a_draft_named_by_its_maker_stays_one_until_it_is_approved(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    shelf = ButlerSkillSet.open(registry, "mine", directory, ["w@1.1.0"])
    assert [(one.skill.label, one.draft) for one in shelf.packs()] == [("w@1.1.0", True)]
    assert shelf.find("w").draft
    registry.approve("w", "1.1.0")
    assert not shelf.find("w").draft


def test_a_new_draft_does_not_hide_the_makers_approved_version(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    shelf = ButlerSkillSet.open(registry, "mine", directory, [])
    assert [(one.skill.label, one.draft) for one in shelf.skills()] == [("w@1.0.0", False)]
    assert shelf.find("w").skill.version == "1.0.0"
    assert shelf.find("w@1.1.0").draft
    assert [one.skill.label for one in shelf.skills_and_drafts()] == ["w@1.0.0", "w@1.1.0"]
    registry.approve("w", "1.1.0")
    assert [(one.skill.label, one.draft) for one in shelf.skills_and_drafts()] == [
        ("w@1.1.0", False)
    ]


def test_a_broken_registry_leaves_the_butlers_own_skills_and_is_told(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    write_skill_md(directory / "skills" / "own", "name: own\ndescription: x\n")
    shelf = ButlerSkillSet.open(registry, "mine", directory, [])
    assert shelf.failed() == ()
    registry.file.write_text("not JSON")
    with capture_logs() as log:
        assert [one.name for one in shelf.skills_and_drafts()] == ["own"]
        folders = shelf.mount(tmp_path / "session")
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [["own"], ["own"]]
    assert {line["event"] for line in log} == {"skills that the butler made are not there"}
    (failed,) = shelf.failed()
    assert (failed.wanted, failed.error.code) == ("what this butler made", "skill_registry_broken")
    assert shelf.find("own").name == "own"
    with pytest.raises(SkillRegistryBroken):
        shelf.find("w")


def test_a_pack_that_needs_too_many_fails_alone(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    many = [f"p{n}@1.0.0" for n in range(1_200)]
    registry.register(NewSkill(source(tmp_path, "1.0.0", dependencies=many)))
    fine = write_pack(tmp_path / "fine", id="fine", version="1.0.0", owner="me")
    registry.register(NewSkill(fine))
    shelf = ButlerSkillSet.open(registry, "mine", directory, ["w@1.0.0", "fine@1.0.0"])
    assert [one.name for one in shelf.packs()] == ["fine"]
    (failed,) = shelf.load_result.failed
    assert (failed.wanted, failed.error.code) == ("w@1.0.0", "skill_unresolved")


def test_a_lock_that_is_no_file_fails_the_packs_and_not_the_start(
    registry: SkillRegistry, directory: Path, tmp_path: Path
) -> None:
    with_draft(registry, tmp_path)
    (directory / LOCK_FILE).mkdir()
    shelf = ButlerSkillSet.open(registry, "mine", directory, ["w@1.0.0"])
    assert [failed.wanted for failed in shelf.load_result.failed] == ["w@1.0.0"]


def test_one_bad_skill_is_left_out_and_the_others_are_mounted(
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


def test_a_file_whose_name_is_no_text_is_not_told(registry: SkillRegistry, directory: Path) -> None:
    folder = write_skill_md(directory / "skills" / "own", "name: own\ndescription: x\n")
    write_files(folder, {"scripts/a.sh": "", os.fsdecode(b"scripts/\xff.sh"): ""})
    (own,) = ButlerSkillSet(registry, "mine", directory).skills()
    assert list_files(own.pack) == ["SKILL.md", "scripts/a.sh"]
    assert list(describe_scripts(own.pack)) == ["scripts/a.sh"]


def test_a_fresh_butler_may_make_skills_and_one_without_the_folder_is_offered_nothing(
    registry: SkillRegistry, directory: Path
) -> None:
    shelf = ButlerSkillSet(registry, "mine", directory)
    assert not shelf.needs_tools
    (directory / "skills").mkdir()
    assert shelf.needs_tools
    write_files(directory / "skills" / "bench", {"reflex.toml": ""})
    assert not shelf.needs_tools  # it is there for reflexes only
    shelf.custom.mkdir()
    assert shelf.needs_tools
