"""Collections: plugin marketplaces and repositories of skills, and the choice of one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from butlers.domain.errors import SkillNotFound, SkillTooLarge
from butlers.skills.install.collection import SkillCollection, find_skills, folder_files
from butlers.skills.install.source import open_source
from support.skills import write_files, write_pack, write_skill_md
from support.skills_cli import Run


def collection(root: Path) -> SkillCollection:
    with open_source(root) as opened:
        return opened.collection()


def skill(root: Path, path: str) -> Path:
    name = path.rsplit("/", maxsplit=1)[-1]
    return write_skill_md(root / path, f"name: {name}\ndescription: Does {name}.\n")


@pytest.fixture
def marketplace(tmp_path: Path) -> Path:
    """A marketplace of three plugins: a folder, one that lists its skills, one in another repository."""
    root = tmp_path / "market"
    for path in ("plugins/a/deep/er/skills/one", "plugins/a/skills/two", "skills/three", "x/one"):
        skill(root, path)
    skill(root, "node_modules/no")
    skill(root, ".git/no")
    write_pack(root / "packs" / "four", id="four", owner="me")
    listing = {
        "name": "market",
        "plugins": [
            {"name": "first", "source": "./plugins/a"},
            {"name": "second", "source": "./", "version": "2.0", "skills": ["./skills/three"]},
            {"name": "third", "source": {"source": "github", "repo": "a/b"}},
            {"name": "bad", "source": "../../outside"},
            "nonsense",
        ],
    }
    return write_files(
        root,
        {
            ".claude-plugin/marketplace.json": json.dumps(listing),
            "plugins/a/.claude-plugin/plugin.json": '{"name": "first", "version": "1.4"}',
            "other/.claude-plugin/plugin.json": "{not json",
            "web/manifest.json": '{"name": "a web app"}',
        },
    )


def test_skills_of_a_marketplace_are_found_with_their_plugins(marketplace: Path) -> None:
    found = collection(marketplace)
    assert [(one.path, one.plugin) for one in found.skills] == [
        ("packs/four", ""),
        ("plugins/a/deep/er/skills/one", "first"),
        ("plugins/a/skills/two", "first"),
        ("skills/three", "second"),
        ("x/one", ""),
    ]
    assert found.elsewhere == ("third", "bad")
    assert {one.version for one in found.skills} == {None, "1.4.0", "2.0.0"}


def test_a_skill_is_chosen_by_name_label_or_path(marketplace: Path) -> None:
    found = collection(marketplace)
    for wanted in ("two", "first:two", "plugins/a/skills/two", "./plugins/a/skills/two/"):
        assert [one.path for one in found.choose([wanted])] == ["plugins/a/skills/two"]
    with pytest.raises(SkillNotFound, match="2 skills are named 'one'") as error:
        found.choose(["one"])
    assert "x/one" in (error.value.hint or "")
    with pytest.raises(SkillNotFound, match="no skill 'five'"):
        found.choose(["five"])


def test_one_skill_of_a_collection_is_installed(run: Run, marketplace: Path) -> None:
    refused = run("install", marketplace, "--yes")
    assert refused.code == 1
    assert "5 skills: four, one, two, three, one" in refused.err
    assert "--skill NAME" in refused.err
    ran = run("install", marketplace, "--skill", "three", "--yes")
    assert ran.code == 0
    assert ran.out.startswith("installed three: 2.0.0+")
    assert run("show", "three", "--json").json["origin"] == str(marketplace / "skills/three")


def test_whole_marketplace_is_installed_and_failures_are_told(run: Run, marketplace: Path) -> None:
    (marketplace / "skills/three/evil").symlink_to("/etc/passwd")
    ran = run("install", marketplace, "--all", "--yes")
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 4
    assert "skills/three" in ran.err
    assert [entry["id"] for entry in run("list", "--json").json] == ["four", "one", "two"]


def test_only_skill_of_a_repository_is_installed_without_its_name(run: Run, tmp_path: Path) -> None:
    skill(tmp_path / "repository", ".claude/skills/only")
    assert run("install", tmp_path / "repository", "--yes").out.startswith("installed only:")


def test_folder_without_skills_is_an_error(run: Run, tmp_path: Path) -> None:
    write_files(tmp_path / "empty", {"README.md": "x"})
    ran = run("install", tmp_path / "empty", "--yes")
    assert ran.code == 1
    assert "no SKILL.md and no manifest.json" in ran.err


def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("butlers.skills.install.collection.MAX_COLLECTION_FILES", 3)
    write_files(tmp_path, {f"{number}/x": "x" for number in range(5)})
    with pytest.raises(SkillTooLarge):
        find_skills(folder_files(tmp_path), lambda _path: None)
