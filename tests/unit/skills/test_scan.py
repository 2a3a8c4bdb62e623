"""A folder of skills: bounded, complete or told, and cheap the second time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from butlers.skills.reader import Scanned, SkillScanner
from butlers.skills.tree import MAX_FILES
from support.skills import write_files, write_pack, write_skill_md

LONG_AGO = 1_000_000_000


def names(scanned: Scanned) -> list[str]:
    return [found.reading.skill.name for found in scanned.skills if found.reading.skill]


def codes(scanned: Scanned) -> set[str]:
    return {found.code for found in scanned.diagnostics}


def _skill(root: Path, name: str) -> Path:
    return write_skill_md(root / name, f"name: {name.rsplit('/')[-1]}\ndescription: x\n")


def test_skills_are_found_by_path_and_not_below_another(tmp_path: Path) -> None:
    for name in ("b", "a", "group/c", "a/nested", "node_modules/d", ".git/e"):
        _skill(tmp_path, name)
    write_pack(tmp_path / "pack")
    write_files(tmp_path / "empty", {"README.md": "x"})
    scanned = SkillScanner(tmp_path).scan()
    assert names(scanned) == ["a", "b", "c", "social-media"]
    assert scanned.diagnostics == ()
    assert all(found.digest for found in scanned.skills)


def test_a_root_that_can_not_be_read_is_an_error_and_no_empty_list(tmp_path: Path) -> None:
    assert codes(SkillScanner(tmp_path / "gone").scan()) == {"skill-unreadable"}


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        _skill(tmp_path, name)
    scanner = SkillScanner(tmp_path)
    first = scanner.scan()
    assert first.reread == 3
    second = scanner.scan()
    assert second.reread == 0
    assert second.skills == first.skills
    write_skill_md(tmp_path / "b", "name: b\ndescription: y\n")
    shutil.rmtree(tmp_path / "c")
    _skill(tmp_path, "d")
    third = scanner.scan()
    assert names(third) == ["a", "b", "d"]
    assert third.reread == 2
    assert third.skills[0] is first.skills[0]
    assert third.skills[1].reading.skill.description == "y"  # type: ignore[union-attr]


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    folder = _skill(tmp_path, "a")
    scanner = SkillScanner(tmp_path)
    first = scanner.scan().skills[0]
    before = (folder / "SKILL.md").stat()
    write_skill_md(folder, "name: a\ndescription: y\n")
    os.utime(folder / "SKILL.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = scanner.scan().skills[0]
    assert second.digest != first.digest
    assert second.reading.skill.description == "y"  # type: ignore[union-attr]


def test_a_file_that_was_only_touched_keeps_its_skill(tmp_path: Path) -> None:
    folder = _skill(tmp_path, "a")
    scanner = SkillScanner(tmp_path)
    first = scanner.scan()
    os.utime(folder / "SKILL.md", (LONG_AGO, LONG_AGO))
    second = scanner.scan()
    assert second.reread == 0
    assert second.skills[0] is first.skills[0]


def test_a_changed_script_changes_the_hash(tmp_path: Path) -> None:
    folder = _skill(tmp_path, "a")
    write_files(folder, {"scripts/run.sh": "one"})
    scanner = SkillScanner(tmp_path)
    first = scanner.scan().skills[0].digest
    write_files(folder, {"scripts/run.sh": "two"})
    assert scanner.scan().skills[0].digest != first


def test_endless_listings_are_cut_and_told(tmp_path: Path) -> None:
    for number in range(6):
        _skill(tmp_path, f"s{number}")
    scanned = SkillScanner(tmp_path, max_skills=4).scan()
    assert len(scanned.skills) == 4
    assert codes(scanned) == {"scan-too-many"}
    assert all(found.severity == "error" for found in scanned.diagnostics)


def test_folders_that_go_too_deep_are_told(tmp_path: Path) -> None:
    _skill(tmp_path, "1/2/3/4/5/deep")
    scanned = SkillScanner(tmp_path).scan()
    assert scanned.skills == ()
    assert codes(scanned) == {"scan-too-many"}


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    _skill(tmp_path, "group/a")
    (tmp_path / "group" / "again").symlink_to(tmp_path, target_is_directory=True)
    scanned = SkillScanner(tmp_path).scan()
    assert "a" in names(scanned)
    assert "scan-too-many" in codes(scanned)


def test_a_link_to_a_shared_skill_is_followed_and_another_is_not(tmp_path: Path) -> None:
    _skill(tmp_path, "shared/skills/common")
    _skill(tmp_path, "private/secret")
    own = tmp_path / "health" / "skills"
    _skill(own, "mine")
    (own / "common").symlink_to("../../shared/skills/common")
    (own / "secret").symlink_to(tmp_path / "private" / "secret")
    scanned = SkillScanner(own, shared=tmp_path / "shared" / "skills").scan()
    assert names(scanned) == ["common", "mine"]
    assert codes(scanned) == {"tree-link-leaves"}


def test_a_name_that_two_folders_claim_is_told(tmp_path: Path) -> None:
    _skill(tmp_path, "one/same")
    _skill(tmp_path, "two/same")
    scanned = SkillScanner(tmp_path).scan()
    assert codes(scanned) == {"skill-shadows"}


def test_a_skill_with_too_many_files_is_listed_with_its_fault(tmp_path: Path) -> None:
    folder = _skill(tmp_path, "a")
    for number in range(MAX_FILES + 1):
        (folder / f"{number}").touch()
    scanned = SkillScanner(tmp_path).scan()
    assert names(scanned) == ["a"]
    assert scanned.skills[0].reading.codes() == {"tree-too-many"}
    assert scanned.skills[0].digest == ""
