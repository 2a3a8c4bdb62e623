"""Scan a folder of skills: bounded, and complete or with an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from butlers.skills.reader import Scan, scan_skills
from support.skills import write_files, write_pack, write_skill_md


def names(scanned: Scan) -> list[str]:
    return [found.reading.skill.name for found in scanned.skills if found.reading.skill]


def codes(scanned: Scan) -> set[str]:
    return {found.code for found in scanned.diagnostics}


def _skill(root: Path, name: str) -> Path:
    return write_skill_md(root / name, f"name: {name.rsplit('/')[-1]}\ndescription: x\n")


def test_skills_are_sorted_by_path_and_not_nested(tmp_path: Path) -> None:
    for name in ("b", "a", "group/c", "a/nested", "node_modules/d", ".git/e"):
        _skill(tmp_path, name)
    write_pack(tmp_path / "pack")
    write_files(tmp_path / "empty", {"README.md": "x"})
    scanned = scan_skills(tmp_path)
    assert names(scanned) == ["a", "b", "c", "social-media"]
    assert scanned.diagnostics == ()


def test_an_unreadable_root_is_an_error(tmp_path: Path) -> None:
    assert codes(scan_skills(tmp_path / "gone")) == {"skill-unreadable"}


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    folder = _skill(tmp_path, "a")
    scan_skills(tmp_path)
    before = (folder / "SKILL.md").stat()
    write_skill_md(folder, "name: a\ndescription: y\n")
    os.utime(folder / "SKILL.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = scan_skills(tmp_path).skills[0]
    assert second.reading.skill.description == "y"  # type: ignore[union-attr]


def test_more_skills_than_the_limit_is_an_error(tmp_path: Path) -> None:
    for number in range(6):
        _skill(tmp_path, f"s{number}")
    scanned = scan_skills(tmp_path, max_skills=4)
    assert len(scanned.skills) == 4
    assert codes(scanned) == {"scan-too-many"}
    assert all(found.severity == "error" for found in scanned.diagnostics)


def test_folders_over_the_depth_limit_are_an_error(tmp_path: Path) -> None:
    _skill(tmp_path, "1/2/3/4/5/deep")
    assert names(scan_skills(tmp_path)) == ["deep"]
    scanned = scan_skills(tmp_path, max_depth=4)
    assert scanned.skills == ()
    assert codes(scanned) == {"scan-too-many"}


def test_a_scan_of_circular_links_ends(tmp_path: Path) -> None:
    _skill(tmp_path, "group/a")
    (tmp_path / "group" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "more").symlink_to("group", target_is_directory=True)
    scanned = scan_skills(tmp_path)
    assert names(scanned) == ["a"]
    assert scanned.diagnostics == ()


def test_number_of_scanned_folders_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.skills.reader.MAX_SCANNED_FOLDERS", 3)
    for number in range(6):
        _skill(tmp_path, f"s{number}")
    assert codes(scan_skills(tmp_path)) == {"scan-too-many"}


def test_only_links_into_the_shared_folder_are_followed(tmp_path: Path) -> None:
    _skill(tmp_path, "shared/skills/common")
    _skill(tmp_path, "private/secret")
    own = tmp_path / "health" / "skills"
    _skill(own, "mine")
    (own / "common").symlink_to("../../shared/skills/common")
    (own / "secret").symlink_to(tmp_path / "private" / "secret")
    scanned = scan_skills(own, shared=tmp_path / "shared" / "skills")
    assert names(scanned) == ["common", "mine"]
    assert codes(scanned) == {"tree-link-leaves"}


def test_two_folders_with_the_same_name_are_reported(tmp_path: Path) -> None:
    _skill(tmp_path, "one/same")
    _skill(tmp_path, "two/same")
    scanned = scan_skills(tmp_path)
    assert codes(scanned) == {"skill-shadows"}
