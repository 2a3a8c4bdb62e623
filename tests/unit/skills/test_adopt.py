"""Shapes of public skills: each installs without a question about its form, and keeps its SKILL.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import InvalidArguments, SkillError, SkillVersionTaken
from butlers.skills.check.rules import check
from butlers.skills.install.install import InstallOffer, RegistryInstaller
from butlers.skills.names import is_version, lenient_version
from butlers.skills.reader import read_skill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill import SkillSpec
from support.skills import write_files, write_pack, write_skill_md
from support.skills_cli import Run


def agree(_offer: InstallOffer) -> bool:
    return True


@pytest.fixture
def registry(tmp_path: Path) -> SkillRegistry:
    return SkillRegistry(tmp_path / "home")


def installed(registry: SkillRegistry, folder: Path, **choices: str) -> tuple[str, SkillSpec]:
    """Install the folder and return the registered version with the skill as it is read from there."""
    found = RegistryInstaller(registry, "person", **choices).install(folder, agree)
    skill = read_skill(registry.path(found.id, found.latest)).skill
    assert skill is not None
    assert (skill.name, skill.version) == (found.id, found.latest)
    return found.latest, skill


def test_skill_without_version_gets_one_from_its_content(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    folder = write_skill_md(tmp_path / "pdf", "name: pdf\ndescription: Reads PDF.\n")
    first, _ = installed(registry, folder)
    assert first.startswith("0.0.0+")
    assert is_version(first)
    assert installed(registry, folder)[0] == first  # the same content is the same version
    write_skill_md(folder, "name: pdf\ndescription: Reads PDF files.\n")
    second, _ = installed(registry, folder)
    assert second != first
    assert registry.get("pdf").versions == (second, first)
    assert SkillRegistry(registry.home).get("pdf").latest == second


def test_note_says_which_version_and_name_were_given(run: Run, tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "code-review", "name: Code Review\ndescription: Reviews.\n")
    ran = run("install", folder, "--yes")
    assert ran.code == 0
    assert "warning registered-version: no version; registered as 0.0.0+" in ran.err
    assert "warning registered-name: 'Code Review' is registered as code-review" in ran.err
    assert ran.out.startswith("installed code-review: 0.0.0+")


@pytest.mark.parametrize(
    ("name", "folder", "registered"),
    [
        ("Code Review", "code-review", "code-review"),
        ("PDF_Tools", "skills", "pdf-tools"),
        ("名前", "123_名前", "skill-"),
        ("8004", "8004", "8004"),
        ("a--b", "a--b", "a--b"),
        ("x" * 80, "long one", "x" * 64),
        ("plugin:skill/one", "one", "one"),
    ],
)
def test_name_in_another_format_becomes_an_id_and_stays_the_title(
    registry: SkillRegistry, tmp_path: Path, name: str, folder: str, registered: str
) -> None:
    written = write_skill_md(tmp_path / folder, f"name: {name!r}\ndescription: Does it.\n")
    _, skill = installed(registry, written)
    assert skill.name.startswith(registered)
    assert (skill.title or skill.name) == name


def test_name_option_replaces_the_name(registry: SkillRegistry, tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "pdf", "name: pdf\ndescription: Reads PDF.\n")
    _, skill = installed(registry, folder, name="pdf-of-anna")
    assert (skill.name, skill.title) == ("pdf-of-anna", "pdf")
    with pytest.raises(InvalidArguments, match="not a valid name"):
        installed(registry, folder, name="../x")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1.0", "1.0.0"),
        ("2", "2.0.0"),
        ("v1.2.3", "1.2.3"),
        ("2024.01.15", "2024.1.15"),
        ("1.2.3.4", "1.2.3+4"),
        ("1.0.0-beta.1", "1.0.0-beta.1"),
        ("1.0-rc1", "1.0.0-rc1"),
        ("01.2.3", "1.2.3"),
        ("1.0.0+build", "1.0.0+build"),
        ("latest", None),
        ("", None),
        ("1.0.0/../../x", None),
        ("1" * 5_000, None),
    ],
)
def test_versions_are_read_leniently(written: str, meant: str | None) -> None:
    assert lenient_version(written) == meant


def test_version_of_two_numbers_is_installed(registry: SkillRegistry, tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "pdf", "name: pdf\ndescription: PDF.\nversion: 1.0\n")
    assert installed(registry, folder)[0] == "1.0.0"


def test_long_description_is_cut_in_the_manifest_only(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    text = "word " * 500
    folder = write_skill_md(tmp_path / "pdf", f"name: pdf\ndescription: {text}\nversion: 1.0.0\n")
    _, skill = installed(registry, folder)
    assert len(skill.description) <= 1024
    assert skill.description.endswith("…")
    assert text.strip() in (registry.path("pdf", "1.0.0") / "SKILL.md").read_text()


@pytest.mark.parametrize(
    "front",
    [
        "compatibility: ''\n",
        f"compatibility: {'x' * 900}\n",
        "license: ''\n",
        "metadata: {score: .nan, big: 1e999}\n",
        f"metadata: {'{a: ' * 30}1{'}' * 30}\n",
        "allowed-tools: Bash(git add\n",
        "allowed-tools: [Read, 'Bash(a) b(']\n",
        "dependencies: [python>=3.8]\nid: other\nowner: [a]\nenvVars: KEY\n",
        "version: latest\n",
        "hooks: {PreToolUse: []}\n",
    ],
)
def test_odd_fields_do_not_prevent_installation(
    registry: SkillRegistry, tmp_path: Path, front: str
) -> None:
    folder = write_skill_md(tmp_path / "pdf", f"name: pdf\ndescription: PDF.\n{front}")
    installed(registry, folder)


def test_id_and_version_of_a_manifest_are_read_as_the_seed_allows(
    registry: SkillRegistry, tmp_path: Path
) -> None:
    folder = write_pack(tmp_path / "x", id="mail--tools-", version="01.02.3", owner="me")
    assert check(folder).valid
    version, skill = installed(registry, folder)
    assert (skill.name, version) == ("mail--tools-", "1.2.3")
    assert not check(write_pack(tmp_path / "y", id="--", owner="me")).valid


def test_folder_with_a_large_git_history_installs(registry: SkillRegistry, tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "pdf", "name: pdf\ndescription: PDF.\n")
    write_files(folder, {f".git/objects/{number}": "x" for number in range(1_100)})
    assert check(folder).valid
    installed(registry, folder)


def test_conflict_is_found_before_consent_is_asked(registry: SkillRegistry, tmp_path: Path) -> None:
    installed(registry, write_pack(tmp_path / "a" / "social-media", owner="me"))
    other = write_pack(tmp_path / "b" / "social-media", owner="me", description="Another.")

    def unasked(_offer: InstallOffer) -> bool:
        raise AssertionError("asked before all checks")

    with pytest.raises(SkillVersionTaken):
        RegistryInstaller(registry, "person").install(other, unasked)


_LINE = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), max_size=30)
_KEY = st.sampled_from(
    ["name", "description", "version", "license", "compatibility", "allowed-tools", "metadata", "x"]
)
_FRONT = st.lists(st.builds("{}: {}\n".format, _KEY, _LINE), max_size=6).map("".join)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(front=_FRONT, body=_LINE)
def test_check_and_install_have_one_verdict(
    tmp_path_factory: pytest.TempPathFactory, front: str, body: str
) -> None:
    root = tmp_path_factory.mktemp("verdict")
    folder = write_files(root / "a-skill", {"SKILL.md": f"---\n{front}---\n{body}\n"})
    installer = RegistryInstaller(SkillRegistry(root / "home"), "person")
    try:
        installer.install(folder, agree)
    except SkillError:
        assert not check(folder).valid
    else:
        assert check(folder).valid
