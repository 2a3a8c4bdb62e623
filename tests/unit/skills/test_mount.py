"""Installing skills into a session's home: complete and unchanged, all or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from butlers.domain.errors import SkillChanged, SkillInstallationError, SkillPathRefused
from butlers.skills.install.mount import AGENTS_FOLDER, CLAUDE_FOLDER, SkillCopy, SkillInstaller
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.tree import digest_folder
from support.skills import write_files, write_pack, write_skill_md


def a_skill(root: Path, name: str = "a-skill") -> Path:
    folder = write_skill_md(root / "skills" / name, f"name: {name}\ndescription: x\n")
    return write_files(folder, {"references/deep/a.md": "# A\n", "scripts/run.sh": "echo\n"})


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("place", [CLAUDE_FOLDER, AGENTS_FOLDER])
def test_a_skill_is_copied_whole_with_its_permissions(tmp_path: Path, place: Path) -> None:
    source = a_skill(tmp_path)
    (source / "references").chmod(0o750)
    (source / "references/deep/a.md").chmod(0o640)
    (source / "scripts/run.sh").chmod(0o4755)
    folder = tmp_path / "home" / place
    [installed] = SkillInstaller(folder).install([SkillCopy(source, "a-skill")])
    assert installed == folder / "a-skill"
    assert digest_folder(installed) == digest_folder(source)
    assert (installed / "references").stat().st_mode & 0o7777 == 0o750
    assert (installed / "references/deep/a.md").stat().st_mode & 0o7777 == 0o640
    assert (installed / "scripts/run.sh").stat().st_mode & 0o7777 == 0o755  # without setuid
    assert left_in(folder) == ["a-skill"]


def test_links_inside_and_into_the_shared_skills_become_files(tmp_path: Path) -> None:
    source = a_skill(tmp_path / "butler")
    shared = tmp_path / "shared"
    write_files(shared / "common", {"rules.md": "shared\n"})
    (source / "again.md").symlink_to("references/deep/a.md")
    (source / "rules.md").symlink_to(shared / "common" / "rules.md")
    whole = tmp_path / "butler" / "skills" / "common"
    whole.symlink_to(shared / "common")
    installer = SkillInstaller(tmp_path / "home", shared)
    installed, linked = installer.install(
        [SkillCopy(source, "a-skill"), SkillCopy(whole, "common")]
    )
    for file, text in (
        (installed / "again.md", "# A\n"),
        (installed / "rules.md", "shared\n"),
        (linked / "rules.md", "shared\n"),
    ):
        assert file.read_text() == text
        assert not file.is_symlink()
    assert not linked.is_symlink()


def test_link_outside_the_skill_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    key = write_files(tmp_path, {"id_rsa": "PRIVATE KEY"}) / "id_rsa"
    good, bad = a_skill(tmp_path), a_skill(tmp_path, "bad")
    (bad / "example.pem").symlink_to(key)
    folder = tmp_path / "home"
    with pytest.raises(SkillInstallationError, match=r"example\.pem") as error:
        SkillInstaller(folder).install([SkillCopy(good, "a-skill"), SkillCopy(bad, "bad")])
    assert (error.value.skill_name, error.value.skills_dir) == ("bad", folder)
    assert error.value.source == "ref"
    assert isinstance(error.value.cause, SkillPathRefused)
    assert left_in(folder) == []


def test_skill_folder_that_links_outside_is_refused(tmp_path: Path) -> None:
    elsewhere = write_skill_md(tmp_path / "elsewhere", "description: x\n")
    link = tmp_path / "skills" / "a-skill"
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    with pytest.raises(SkillInstallationError, match="is not a skill's folder"):
        SkillInstaller(tmp_path / "home").install([SkillCopy(link, "a-skill")])


def test_colliding_names_are_refused(tmp_path: Path) -> None:
    one, other = a_skill(tmp_path), a_skill(tmp_path, "other")
    folder = tmp_path / "home"
    installer = SkillInstaller(folder)
    with pytest.raises(SkillInstallationError, match="the name is taken by"):
        installer.install([SkillCopy(one, "same"), SkillCopy(other, "Same")])
    with pytest.raises(SkillInstallationError, match="the name is taken by"):
        installer.install([SkillCopy(one, "same"), SkillCopy(one, "same")])
    assert left_in(folder) == []
    installer.install([SkillCopy(one, "same")])
    with pytest.raises(SkillInstallationError, match="the name is taken by"):
        installer.install([SkillCopy(other, "other"), SkillCopy(other, "same")])
    assert left_in(folder) == ["same"]


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "..", "", "a\\b"])
def test_invalid_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SkillInstallationError, match="not a valid name"):
        SkillInstaller(tmp_path / "home").install([SkillCopy(a_skill(tmp_path), name)])


def test_a_registered_skill_that_was_changed_is_not_installed(tmp_path: Path) -> None:
    registry = SkillRegistry(tmp_path / "butlers")
    found = registry.register(NewSkill(write_pack(tmp_path / "social-media", {"a.md": "a"})))
    source, digest = registry.path(found.id, found.latest), found.release(None).digest
    mount = SkillCopy(source, found.id, digest)
    [installed] = SkillInstaller(tmp_path / "one").install([mount])
    assert digest_folder(installed) == digest
    (source / "a.md").chmod(0o644)
    (source / "a.md").write_text("b")
    with pytest.raises(SkillInstallationError) as error:
        SkillInstaller(tmp_path / "two").install([mount])
    assert isinstance(error.value.cause, SkillChanged)
    assert left_in(tmp_path / "two") == []


def test_failed_folder_creation_is_reported(tmp_path: Path) -> None:
    write_files(tmp_path, {"home": "a file"})
    with pytest.raises(SkillInstallationError) as error:
        SkillInstaller(tmp_path / "home" / CLAUDE_FOLDER).install(
            [SkillCopy(a_skill(tmp_path), "a")]
        )
    assert isinstance(error.value.cause, OSError)
    assert error.value.hint
    assert error.value.skills_dir == tmp_path / "home" / CLAUDE_FOLDER


def test_installing_nothing_creates_nothing(tmp_path: Path) -> None:
    assert SkillInstaller(tmp_path / "home").install([]) == ()
    assert left_in(tmp_path) == []


INSTALL = """
import errno, json, sys
from pathlib import Path
from butlers.domain.errors import SkillInstallationError
from butlers.skills.install.mount import SkillCopy, SkillInstaller
folder = Path(sys.argv[1])
try:
    copies = [SkillCopy(Path(path), Path(path).name) for path in sys.argv[2:]]
    SkillInstaller(folder / "skills").install(copies)
except SkillInstallationError as error:
    told = {"name": error.skill_name, "message": error.message, "hint": error.hint}
    print(json.dumps(told | {"left": [str(path) for path in folder.rglob("*")]}))
"""


@pytest.mark.parametrize("options", ["size=64k", "ro"])
def test_a_full_or_unwritable_disk_leaves_nothing_half_written(
    tmp_path: Path, options: str
) -> None:
    small, large = a_skill(tmp_path), a_skill(tmp_path, "large")
    write_files(large, {"data.bin": os.urandom(200_000)})
    (tmp_path / "disk").mkdir()
    # The test may run as root, which ignores permissions, so the disk itself is full.
    line = f'mount -t tmpfs -o {options} none "$1" && exec "$0" -c "$2" "$1" "$3" "$4"'
    words = [sys.executable, tmp_path / "disk", INSTALL, small, large]
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode != 0:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("this system allows no mounts of one's own")
    ended = subprocess.run(
        [*namespaces, "sh", "-c", line, *words], capture_output=True, text=True, check=True
    )
    told = json.loads(ended.stdout)
    full = options != "ro"
    assert ("No space left on device" if full else "Read-only file system") in told["message"]
    assert told["name"] == ("large" if full else "a-skill")
    assert told["hint"]
    assert [Path(path).name for path in told["left"]] == (["skills"] if full else [])
