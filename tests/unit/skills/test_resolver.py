"""Resolving packs to versions, and explaining failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.domain.errors import (
    SkillChanged,
    SkillConflict,
    SkillCycle,
    SkillNotFound,
    SkillRegistryBroken,
    SkillUnresolved,
)
from butlers.skills.registry.catalog import (
    RegisteredSkill,
    Release,
    SkillCatalog,
    SkillState,
    ordered,
)
from butlers.skills.registry.resolver import LOCK_FILE, read_lock, resolve, write_lock

NOW = "2026-01-01T00:00:00Z"


def catalog(
    skills: dict[str, dict[str, list[str]]], draft: str = "", owner: str = "me"
) -> SkillCatalog:
    """{"a": {"1.0.0": ["b@^1"]}}: skill a, one version, which needs b."""
    return SkillCatalog(
        {
            name: RegisteredSkill(
                name,
                owner,
                ordered(
                    {
                        version: Release(
                            version,
                            f"sha256:{name}{version}",
                            SkillState.DRAFT
                            if draft == f"{name}@{version}"
                            else SkillState.APPROVED,
                            NOW,
                            tuple(needs),
                        )
                        for version, needs in versions.items()
                    }
                ),
                NOW,
                NOW,
            )
            for name, versions in skills.items()
        }
    )


def labels(found: SkillCatalog, *packs: str) -> list[str]:
    return [pack.label for pack in resolve(found, "health", packs).packs]


@pytest.mark.scenario("S003-39")
def test_an_exact_version_is_used_as_given_and_an_unknown_one_is_an_error() -> None:
    found = catalog({"a": {"1.0.0": [], "2.0.0": [], "2.1.0": []}})
    assert labels(found, "a@2.0.0") == ["a@2.0.0"]
    assert resolve(found, "health", ["a@2.0.0"]).warnings == ()
    with pytest.raises(SkillNotFound, match=r"health → a@3\.0\.0") as error:
        resolve(found, "health", ["a@3.0.0"])
    assert error.value.hint == "available: 2.1.0, 2.0.0, 1.0.0"


@pytest.mark.scenario("S003-40")
def test_no_version_means_the_latest_with_a_warning() -> None:
    found = catalog({"a": {"1.9.0": [], "1.10.0": []}})
    resolution = resolve(found, "health", ["a"])
    assert [pack.label for pack in resolution.packs] == ["a@1.10.0"]
    assert len(resolution.warnings) == 1
    assert 'write "a@1.10.0"' in resolution.warnings[0]


def test_a_range_takes_the_newest_that_fits() -> None:
    assert labels(catalog({"a": {"1.0.0": [], "1.5.0": [], "2.0.0": []}}), "a@^1") == ["a@1.5.0"]


@pytest.mark.scenario("S003-20")
def test_dependencies_of_dependencies_are_there_and_come_first() -> None:
    found = catalog(
        {
            "a": {"1.0.0": ["b@^1"]},
            "b": {"1.0.0": ["c@1.0.0"], "1.1.0": ["c@1.0.0"]},
            "c": {"1.0.0": []},
        }
    )
    resolution = resolve(found, "health", ["a@1.0.0"])
    assert [pack.label for pack in resolution.packs] == ["c@1.0.0", "b@1.1.0", "a@1.0.0"]
    assert resolution.packs[0].required_by == ("health", "a@1.0.0", "b@1.1.0")
    with pytest.raises(
        SkillNotFound, match=r"no skill c: health → a@1\.0\.0 → b@1\.1\.0 → c@1\.0\.0"
    ):
        resolve(found.without("c"), "health", ["a@1.0.0"])


def test_an_older_version_is_taken_when_the_newest_does_not_fit_the_rest() -> None:
    found = catalog(
        {
            "a": {"1.0.0": ["x@^1"], "2.0.0": ["x@^2"]},
            "b": {"1.0.0": ["x@^1"]},
            "x": {"1.0.0": [], "2.0.0": []},
        }
    )
    assert labels(found, "a@>=1", "b@1.0.0") == ["x@1.0.0", "a@1.0.0", "b@1.0.0"]


def test_a_conflict_is_explained_by_both_chains() -> None:
    found = catalog(
        {"a": {"1.0.0": ["x@^1"]}, "b": {"1.0.0": ["x@^2"]}, "x": {"1.0.0": [], "2.0.0": []}}
    )
    with pytest.raises(SkillConflict) as error:
        resolve(found, "health", ["a@1.0.0", "b@1.0.0"])
    assert "health → a@1.0.0 → x@^1" in error.value.message
    assert "health → b@1.0.0 → x@^2" in error.value.message
    assert error.value.code == "skill_conflict"


def test_two_versions_of_one_pack_are_a_conflict() -> None:
    with pytest.raises(SkillConflict):
        labels(catalog({"a": {"1.0.0": [], "2.0.0": []}}), "a@1.0.0", "a@2.0.0")


@pytest.mark.parametrize("needs", [["a"], ["a@1.0.0"], ["a@^1"]])
def test_circular_dependency_is_reported(needs: list[str]) -> None:
    found = catalog({"a": {"1.0.0": ["b"]}, "b": {"1.0.0": ["c@1.0.0"]}, "c": {"1.0.0": needs}})
    with pytest.raises(SkillCycle, match=r"a@1\.0\.0 → b@1\.0\.0 → c@1\.0\.0 → a"):
        resolve(found, "health", ["a"])
    with pytest.raises(SkillCycle):
        resolve(catalog({"a": {"1.0.0": ["a"]}}), "health", ["a"])


def test_very_long_chain_is_refused() -> None:
    many = {f"p{n}": {"1.0.0": [f"p{n + 1}@1.0.0"]} for n in range(300)} | {"p300": {"1.0.0": []}}
    with pytest.raises(SkillUnresolved, match="more than 200 packs"):
        resolve(catalog(many), "health", ["p0@1.0.0"])


def test_too_many_dependencies_are_refused() -> None:
    other = {f"p{n}": {"1.0.0": []} for n in range(1_200)}
    found = catalog({"a": {"1.0.0": [f"{name}@1.0.0" for name in other]}} | other)
    with pytest.raises(SkillUnresolved, match=r"a@1\.0\.0 needs more than 200 packs"):
        resolve(found, "health", ["a@1.0.0"])
    with pytest.raises(SkillUnresolved, match="more than 200 packs"):
        resolve(found, "health", [f"{name}@1.0.0" for name in other])
    same = catalog({"a": {"1.0.0": []}})
    assert labels(same, *["a@^1"] * 1_200) == ["a@1.0.0"]
    deepest = [f"p{n}" for n in range(200)]
    chain = {
        name: {"1.0.0": [f"{after}@1.0.0"] if after else []}
        for name, after in zip(deepest, [*deepest[1:], ""], strict=True)
    }
    assert len(labels(catalog(chain), "p0@1.0.0")) == 200


def test_too_many_combinations_are_refused() -> None:
    versions = [f"1.{n}.0" for n in range(12)]
    skills = {f"p{n}": {version: [f"x@1.{n}.0"] for version in versions} for n in range(12)}
    skills["x"] = {version: [] for version in versions}
    with pytest.raises(SkillUnresolved):
        resolve(catalog(skills), "health", [f"p{n}@^1" for n in range(12)])


def test_a_draft_is_for_its_maker_only() -> None:
    found = catalog({"a": {"1.0.0": [], "1.1.0": []}}, draft="a@1.1.0", owner="finance")
    assert labels(found, "a@^1") == ["a@1.0.0"]
    assert [pack.label for pack in resolve(found, "finance", ["a@1.1.0"]).packs] == ["a@1.1.0"]
    with pytest.raises(SkillUnresolved, match="draft of finance") as error:
        resolve(found, "health", ["a@1.1.0"])
    assert "`butlers skills approve a@1.1.0`" in (error.value.hint or "")


def test_a_draft_is_never_chosen_by_a_range_not_even_for_its_maker() -> None:
    found = catalog(
        {"a": {"1.0.0": [], "1.1.0": []}, "b": {"1.0.0": ["a@1.1.0"]}, "c": {"1.0.0": ["a@^1"]}},
        draft="a@1.1.0",
        owner="finance",
    )

    def got(*packs: str) -> list[str]:
        return [pack.label for pack in resolve(found, "finance", packs).packs]

    assert got("a@^1") == got("a") == ["a@1.0.0"]
    with pytest.raises(SkillUnresolved, match="draft of finance"):
        got("b@1.0.0")  # a pack names it, the configuration does not
    assert got("c@1.0.0", "a@1.1.0") == ["a@1.1.0", "c@1.0.0"]
    only = catalog({"a": {"1.1.0": []}}, draft="a@1.1.0", owner="finance")
    with pytest.raises(SkillUnresolved, match="draft of finance"):
        resolve(only, "finance", ["a"])


def test_a_draft_of_an_older_lock_is_not_kept() -> None:
    approved = catalog({"a": {"1.0.0": [], "1.1.0": []}}, owner="finance")
    locked = {pack.id: pack for pack in resolve(approved, "finance", ["a@^1"]).packs}
    found = catalog({"a": {"1.0.0": [], "1.1.0": []}}, draft="a@1.1.0", owner="finance")
    again = resolve(found, "finance", ["a@^1"], locked)
    assert [pack.label for pack in again.packs] == ["a@1.0.0"]


def test_invalid_requirement_is_refused() -> None:
    with pytest.raises(SkillUnresolved, match=r"'\.\./a'"):
        resolve(SkillCatalog(), "health", ["../a"])


def test_a_lock_keeps_the_versions_until_they_no_longer_fit(tmp_path: Path) -> None:
    file = tmp_path / LOCK_FILE
    old = catalog({"a": {"1.0.0": ["b@^1"]}, "b": {"1.0.0": []}})
    first = resolve(old, "health", ["a@^1"])
    write_lock(file, first)
    locked = read_lock(file)
    assert tuple(locked.values()) == first.packs
    new = catalog({"a": {"1.0.0": ["b@^1"], "1.1.0": ["b@^1"]}, "b": {"1.0.0": [], "1.2.0": []}})
    assert resolve(new, "health", ["a@^1"], locked).packs == first.packs
    assert labels(new, "a@^1") == ["b@1.2.0", "a@1.1.0"]
    again = resolve(new, "health", ["a@1.1.0"], locked)
    assert [pack.label for pack in again.packs] == ["b@1.0.0", "a@1.1.0"]


def test_content_that_changed_after_it_was_locked_is_refused(tmp_path: Path) -> None:
    found = catalog({"a": {"1.0.0": []}})
    write_lock(tmp_path / LOCK_FILE, resolve(found, "health", ["a@1.0.0"]))
    skill = found.get("a")
    other = Release("1.0.0", "sha256:other", SkillState.APPROVED, NOW)
    changed = found.with_skill(RegisteredSkill("a", skill.owner, {"1.0.0": other}, NOW, NOW))
    with pytest.raises(SkillChanged):
        resolve(changed, "health", ["a@1.0.0"], read_lock(tmp_path / LOCK_FILE))


def test_unreadable_lock_is_reported(tmp_path: Path) -> None:
    assert read_lock(tmp_path / LOCK_FILE) == {}
    (tmp_path / LOCK_FILE).write_text("{")
    with pytest.raises(SkillRegistryBroken):
        read_lock(tmp_path / LOCK_FILE)
