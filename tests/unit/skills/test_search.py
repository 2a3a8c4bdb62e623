"""Search of registered skills and local collections."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.skills.search import IndexedSkill, SkillIndex, index_folder
from support.skills import write_files, write_pack, write_skill_md
from support.skills_cli import Run


@pytest.fixture
def index(tmp_path: Path) -> SkillIndex:
    return SkillIndex(tmp_path / "home")


def fill(index: SkillIndex, *skills: tuple[str, str], signature: str = "1") -> bool:
    rows = [IndexedSkill(name, name, "", about, f"/{name}") for name, about in skills]
    return index.refresh("test", signature, lambda: rows)


def labels(index: SkillIndex, *words: str) -> list[str]:
    return [found.label for found in index.search(words)]


def test_names_rank_before_descriptions_and_forms_of_words_match(index: SkillIndex) -> None:
    fill(
        index,
        ("mail-merge", "Sends letters."),
        ("postbox", "Reads mail of a mailbox and translates messages."),
        ("garden", "Plants."),
    )
    assert labels(index, "mail") == ["mail-merge", "postbox"]
    assert labels(index, "translating") == ["postbox"]
    assert labels(index, "gard") == ["garden"]
    assert labels(index, "sends", "letters", "plants")[0] == "mail-merge"
    assert labels(index, "nothing-like-it") == []


@pytest.mark.parametrize(
    "words", ['"', "a OR", "NEAR(", "*", "name:x", "'; DROP TABLE skills;--", ""]
)
def test_operators_are_plain_words(index: SkillIndex, words: str) -> None:
    fill(index, ("mail-merge", "Sends letters."))
    labels(index, words)
    assert labels(index, "letters") == ["mail-merge"]


def test_unchanged_source_is_not_read_again(index: SkillIndex) -> None:
    assert fill(index, ("one", "First."))
    assert not fill(index, ("two", "Second."))
    assert fill(index, ("two", "Second."), signature="2")
    assert labels(index, "first") == []
    assert labels(index, "second") == ["two"]


def test_damaged_index_is_made_anew(index: SkillIndex) -> None:
    fill(index, ("one", "First."))
    index.file.write_bytes(b"no database" * 1000)
    assert index.sources() == ()
    assert fill(index, ("one", "First."))


def test_git_clone_is_read_again_at_another_commit(index: SkillIndex, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    write_skill_md(clone / "skills" / "pdf", "name: pdf\ndescription: Reads documents.\n")
    head = {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": "a" * 40}
    write_files(clone, dict(head))
    assert index_folder(index, clone)
    write_skill_md(clone / "skills" / "ocr", "name: ocr\ndescription: Reads pictures.\n")
    assert not index_folder(index, clone)
    write_files(clone, {".git/refs/heads/main": "b" * 40})
    assert index_folder(index, clone)
    assert labels(index, "reads") == ["ocr", "pdf"]


def test_command_searches_registered_skills_and_known_collections(run: Run, tmp_path: Path) -> None:
    run("register", write_pack(tmp_path / "social-media", owner="me"))
    clone = tmp_path / "clone"
    write_skill_md(clone / "a" / "poster", "name: poster\ndescription: Posts pictures.\n")
    assert [one["skill"] for one in run("search", "posts", "--json").json] == ["social-media@2.1.0"]
    found = run("search", "posts", "--in", clone, "--json").json
    assert {one["skill"] for one in found} == {"poster", "social-media@2.1.0"}
    assert {one["skill"] for one in run("search", "posts", "--json").json} == {
        "poster",
        "social-media@2.1.0",
    }
    (clone / "a" / "poster").rename(tmp_path / "away")
    assert "poster" not in run("search", "pictures", "--refresh").out
    clone.rename(tmp_path / "gone")
    ran = run("search", "posts")
    assert "is not a folder" in ran.err
    assert ran.code == 0
