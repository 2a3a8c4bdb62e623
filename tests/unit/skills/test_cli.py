"""``butlers skills``: JSON documents, hints and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from butlers.config.overrides import shipped_roster
from butlers.config.packs import name_pack
from butlers.config.roster import remember_butler
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from support.skills import write_files, write_pack, write_skill_md
from support.skills_cli import Run

LOCKED = {"id": "social-media", "version": "1.0.0", "hash": "x", "owner": "me", "requiredBy": []}
LOCK = json.dumps({"packs": [LOCKED]})


def pack(tmp_path: Path, version: str = "1.0.0", **fields: Any) -> Path:
    return write_pack(
        tmp_path / "sources" / version / "social-media", version=version, owner="me", **fields
    )


# No system looks at a name of that length; a dead mount and a forbidden folder fail like it, and not as if
# nothing were there.
UNREACHABLE = "x" * 300


def own_butler(tmp_path: Path, *packs: str) -> None:
    named = ", ".join(f'"{pack}"' for pack in packs)
    write_files(
        tmp_path / "butlers" / "mine",
        {"butler.toml": f'[butler]\nname = "mine"\nport = 40190\n\n[skills]\npacks = [{named}]\n'},
    )


def test_a_skill_is_registered_listed_shown_updated_and_removed(run: Run, tmp_path: Path) -> None:
    assert run("list", "--json").json == []
    assert run("register", pack(tmp_path)).out == "registered social-media: 1.0.0\n"
    assert run("update", pack(tmp_path, "1.1.0")).out == "updated social-media: 1.1.0, 1.0.0\n"
    [listed] = run("list", "--json").json
    assert (listed["id"], listed["versions"], listed["usedBy"]) == (
        "social-media",
        ["1.1.0", "1.0.0"],
        [],
    )
    assert "social-media  1.1.0" in run("list").out
    shown = run("show", "social-media@1.0.0", "--json").json
    assert (shown["version"], shown["state"], shown["unchanged"]) == ("1.0.0", "approved", True)
    assert shown["capabilities"]["scripts"] == []
    assert "Posts to two networks." in run("show", "social-media").out
    assert run("remove", "social-media@1.0.0").code == 0
    assert run("remove", "social-media").out == "removed social-media\n"
    assert run("list", "--json").json == []


def test_errors_have_a_message_a_hint_and_exit_code_1(run: Run, tmp_path: Path) -> None:
    folder = pack(tmp_path)
    run("register", folder)
    write_pack(folder, version="1.0.0", owner="me", description="Other.")
    for arguments, message in (
        (("register", folder), "registered with different content"),
        (("register", pack(tmp_path, "2.0.0")), "social-media is already registered"),
        (("show", "gone"), "there is no skill 'gone'"),
        (("show", "social-media@9.9.9"), "has no version 9.9.9"),
        (("remove", "gone"), "there is no skill 'gone'"),
        (("resolve", "gone@1.0.0"), "there is no skill gone"),
        (("resolve",), "name packs or a butler"),
        (("resolve", "--butler", "nobody"), "there is no butler 'nobody'"),
        (("check", folder, "--for", "emacs"), "there is no client 'emacs'"),
        (("install", tmp_path / "gone.zip"), "gone.zip"),
    ):
        ran = run(*arguments)
        assert ran.code == 1, arguments
        assert ran.err.startswith("error: "), arguments
        assert message in ran.err
        assert "\nhint: " in ran.err, arguments
        assert ran.out == ""


def test_a_skill_that_a_butler_names_is_not_removed(run: Run, tmp_path: Path) -> None:
    own_butler(tmp_path, "social-media@^1")
    run("register", pack(tmp_path))
    assert run("list", "--json").json[0]["usedBy"] == ["mine"]
    ran = run("remove", "social-media")
    assert ran.code == 1
    assert "used by mine" in ran.err
    assert run("list", "--json").json != []


def test_skill_of_a_butler_in_another_folder_is_not_removed(
    run: Run, home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    own_butler(elsewhere, "social-media@^1")
    folder = elsewhere / "butlers" / "mine"
    with (folder / "butler.toml").open("a") as file:
        file.write('\n[modules.x]\nkey = "${NOT_SET_HERE}"\n')
    remember_butler(home, folder)
    remember_butler(home, folder)
    run("register", pack(tmp_path))
    assert run("list", "--json").json[0]["usedBy"] == ["mine"]
    ran = run("remove", "social-media")
    assert (ran.code, "used by mine" in ran.err) == (1, True)
    (folder / "butler.toml").write_text("not TOML")
    assert run("list", "--json").json[0]["usedBy"] == []
    unknown = run("remove", "social-media")
    assert (unknown.code, "a butler may use it" in unknown.err) == (1, True)
    assert str(folder / "butler.toml") in unknown.err
    write_files(folder, {"skills.lock": LOCK})
    assert "used by mine" in run("remove", "social-media@1.0.0").err
    shutil.rmtree(elsewhere)
    assert run("remove", "social-media").code == 0


def test_broken_lock_file_prevents_only_removal(run: Run, home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    own_butler(elsewhere)
    folder = elsewhere / "butlers" / "mine"
    remember_butler(home, folder)
    write_files(folder, {"skills.lock": "not JSON"})
    assert run("register", pack(tmp_path)).code == 0
    assert run("update", pack(tmp_path, "1.1.0")).code == 0
    assert run("list", "--json").json[0]["versions"] == ["1.1.0", "1.0.0"]
    refused = run("remove", "social-media")
    assert refused.code == 1
    assert "a butler may use it" in refused.err
    assert str(folder / "skills.lock") in refused.err
    assert "hint: repair" in refused.err
    (folder / "skills.lock").unlink()
    assert run("remove", "social-media").code == 0


@pytest.mark.parametrize("written", ["not TOML", "[skills]\npacks = 1\n"])
def test_broken_configuration_prevents_only_removal(run: Run, tmp_path: Path, written: str) -> None:
    write_files(tmp_path / "butlers" / "mine", {"butler.toml": written})
    assert run("register", pack(tmp_path)).code == 0
    assert run("list", "--json").json[0]["usedBy"] == []
    assert "a butler may use it" in run("remove", "social-media").err
    own_butler(tmp_path)
    assert run("remove", "social-media").code == 0


def test_packs_of_a_butler_that_cannot_start_are_in_use(run: Run, tmp_path: Path) -> None:
    own_butler(tmp_path, "social-media@^1")
    with (tmp_path / "butlers" / "mine" / "butler.toml").open("a") as file:
        file.write('\n[modules.x]\nkey = "${NOT_SET_HERE}"\n')
    assert run("register", pack(tmp_path)).code == 0
    assert "used by mine" in run("remove", "social-media").err


def test_unreadable_folder_prevents_only_removal(run: Run, home: Path, tmp_path: Path) -> None:
    gone, dead = tmp_path / "gone", tmp_path / UNREACHABLE
    write_files(home / "registry", {"butlers.json": json.dumps([str(gone), str(dead)])})
    assert run("register", pack(tmp_path)).code == 0
    assert len(run("list", "--json").json) == 1
    refused = run("remove", "social-media")
    assert (refused.code, "a butler may use it" in refused.err) == (1, True)
    assert (UNREACHABLE in refused.err, str(gone) in refused.err) == (True, False)
    (home / "registry" / "butlers.json").unlink()
    (home / "registry" / "butlers.json").mkdir()
    assert len(run("list", "--json").json) == 1
    assert "butlers.json" in run("remove", "social-media").err


def test_skill_of_the_roster_in_the_home_folder_is_not_removed(
    run: Run, home: Path, tmp_path: Path
) -> None:
    run("register", pack(tmp_path))
    file = home / "roster" / "general" / "butler.toml"
    name_pack(file, "social-media@1.0.0")
    assert run("list", "--json").json[0]["usedBy"] == ["general"]
    assert "used by general" in run("remove", "social-media").err


def test_skill_assigned_to_a_shipped_butler_is_not_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    shutil.copytree(shipped_roster(), shipped)
    for module in ("config.packs", "config.overrides"):
        monkeypatch.setattr(f"butlers.{module}.shipped_roster", lambda: shipped)
    run("register", pack(tmp_path))
    assert run("assign", "social-media", "general").code == 0
    assert "used by general" in run("remove", "social-media").err  # before its next start


def test_resolve_shows_and_locks_the_versions(run: Run, tmp_path: Path) -> None:
    own_butler(tmp_path, "upper@^1", "social-media")
    run("register", pack(tmp_path))
    run("register", write_pack(tmp_path / "upper", id="upper", dependencies=["social-media@1.0.0"]))
    ran = run("resolve", "--butler", "mine", "--json")
    assert ran.code == 1  # upper is 2.1.0
    assert "no version of upper fits: mine → upper@^1" in ran.err
    own_butler(tmp_path, "upper@^2", "social-media")
    ran = run("resolve", "--butler", "mine", "--lock", "--json")
    assert [pack["id"] for pack in ran.json["packs"]] == ["social-media", "upper"]
    lock = json.loads((tmp_path / "butlers" / "mine" / "skills.lock").read_text())
    assert [pack["hash"] for pack in lock["packs"]] == [pack["hash"] for pack in ran.json["packs"]]
    run("update", pack(tmp_path, "1.1.0"))
    own_butler(tmp_path, "upper@^2")
    assert "used by mine" in run("remove", "social-media@1.0.0").err  # by the lock
    assert run("remove", "social-media@1.1.0").code == 0
    assert "social-media@1.0.0" in run("resolve", "social-media").out
    assert "warning: person → social-media names no version" in run("resolve", "social-media").err


def test_changed_files_are_shown_by_show_and_refused_by_resolve(
    run: Run, tmp_path: Path, home: Path
) -> None:
    run("register", pack(tmp_path))
    file = home / "skills" / "custom" / "social-media@1.0.0" / "manifest.json"
    file.chmod(0o644)
    file.write_text("{}")
    shown = run("show", "social-media", "--json")
    assert shown.code == 1
    assert shown.json["unchanged"] is False
    assert "has changed since it was registered" in run("show", "social-media").err
    assert run("resolve", "social-media@1.0.0").code == 1


def test_check_reports_all_problems_and_every_clients_verdict(run: Run, tmp_path: Path) -> None:
    write_skill_md(tmp_path / "skills" / "good", "name: good\ndescription: x\n")
    write_skill_md(tmp_path / "skills" / "other", "name: differs\ndescription: Use when: asked\n")
    clients = "claude,codex,gemini,vscode,skills-ref"
    ran = run("check", tmp_path / "skills", "--for", clients, "--json")
    assert ran.code == 0
    good, other = ran.json
    assert {said["client"]: said["outcome"] for said in good["clients"]} == dict.fromkeys(
        clients.split(","), "loads"
    )
    assert {said["client"]: said["outcome"] for said in other["clients"]} == {
        "claude": "degraded",
        "codex": "loads",
        "gemini": "degraded",
        "vscode": "dropped",
        "skills-ref": "dropped",
    }
    assert all(said["reasons"] for said in other["clients"] if said["outcome"] != "loads")
    assert [found["code"] for found in other["diagnostics"]] == [
        "frontmatter-not-yaml",
        "frontmatter-requoted",
        "name-directory",
    ]
    text = run("check", tmp_path / "skills", "--for", "vscode").out
    assert "other/SKILL.md:3:" in text
    assert "vscode dropped: the front matter is not YAML; name and folder name differ" in text


def test_check_fails_for_an_error_and_fix_repairs_safe_ones(run: Run, tmp_path: Path) -> None:
    folder = pack(tmp_path, envVars=["KEY"])
    assert run("check", folder).code == 1
    assert "manifest-env-example" in run("check", folder).out
    ran = run("check", folder, "--fix")
    assert ran.code == 0
    assert "fixed manifest-env-example" in ran.out
    assert run("check", tmp_path / "nowhere").code == 1
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    assert run("check", tmp_path / "empty").code == 1


def test_check_in_the_skills_own_folder_uses_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_skill_md(tmp_path / "my-skill", "name: my-skill\ndescription: x\n")
    monkeypatch.chdir(folder)
    ran = run("check", ".", "--for", "skills-ref", "--json")
    (outcome,) = ran.json
    assert (ran.code, outcome["skill"], outcome["diagnostics"]) == (0, "my-skill", [])
    assert outcome["clients"][0]["outcome"] == "loads"


def test_fix_in_the_skills_own_folder_writes_the_folders_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_skill_md(tmp_path / "my-skill", "description: x\n")
    (folder / "references").mkdir()
    monkeypatch.chdir(folder / "references")
    ran = run("check", "..", "--fix")
    assert ran.code == 0
    assert "fixed name-missing" in ran.out
    assert (folder / "SKILL.md").read_text().startswith("---\nname: my-skill\n")


def test_install_shows_capabilities_and_needs_consent(run: Run, tmp_path: Path) -> None:
    folder = pack(
        tmp_path,
        description="Nice \x1b[2Kskill\u202e.",
        allowedTools=["Bash(rm:*)"],
        mcpServers=[{"name": "m", "type": "remote", "url": "https://mcp.example.com/"}],
    )
    file = shutil.make_archive(str(tmp_path / "packed"), "zip", folder.parent, folder.name)
    ran = run("install", file)
    assert ran.code == 1
    assert "may reach   the MCP server m: https://mcp.example.com/" in ran.err
    assert "may ask for the tool Bash(rm:*)" in ran.err
    assert "its capabilities were not agreed to" in ran.err
    assert "hint: add --yes" in ran.err
    assert "\x1b" not in ran.err
    assert "\\x1b[2Kskill\\u202e" in ran.err
    assert run("list", "--json").json == []
    assert run("install", file, "--yes").out == "installed social-media: 1.0.0\n"
    assert run("list", "--json").json[0]["owner"] == "me"


def test_update_with_fewer_capabilities_needs_no_consent(run: Run, tmp_path: Path) -> None:
    first = write_pack(
        tmp_path / "one" / "social-media",
        {"scripts/a.sh": "#!/bin/sh\n"},
        version="1.0.0",
        owner="me",
        scripts=["scripts/a.sh"],
    )
    assert run("install", first, "--yes").code == 0
    second = write_pack(first, version="1.1.0", owner="me")
    (second / "scripts/a.sh").unlink()
    ran = run("install", second)
    assert (ran.code, ran.out) == (0, "installed social-media: 1.1.0, 1.0.0\n")
    assert "+ may" not in ran.err.replace("+ new", "")
    assert "- may run     the script scripts/a.sh" in ran.err
    assert f"belongs to me, from {first}" in ran.err


def test_update_from_another_origin_needs_consent(run: Run, tmp_path: Path) -> None:
    first = write_pack(tmp_path / "one" / "social-media", version="1.0.0", owner="me")
    assert run("install", first, "--yes").code == 0
    other = write_pack(tmp_path / "two" / "social-media", version="1.1.0", owner="me")
    refused = run("install", other)
    assert refused.code == 1
    why = f"it comes from {other}, but 1.0.0 came from {first}"
    assert f"  changed: {why}" in refused.err
    assert run("list", "--json").json[0]["versions"] == ["1.0.0"]
    assert run("install", other, "--yes").code == 0
    assert run("show", "social-media@1.1.0", "--json").json["origin"] == str(other)


def test_folder_that_claims_a_butler_as_owner_needs_the_owner_option(
    run: Run, tmp_path: Path
) -> None:
    own_butler(tmp_path)
    folder = write_pack(tmp_path / "found" / "a-skill", id="a-skill", owner="mine")
    refused = run("register", folder)
    assert refused.code == 1
    assert "names the butler mine as its owner, which did not make it" in refused.err
    assert "--owner mine" in refused.err
    assert run("register", folder, "--owner", "mine").code == 0


def test_draft_cannot_be_assigned_to_its_maker(run: Run, tmp_path: Path, home: Path) -> None:
    own_butler(tmp_path)
    folder = write_pack(tmp_path / "own" / "a-draft", id="a-draft", version="1.0.0", owner="mine")
    SkillRegistry(home).register(NewSkill(folder, by="mine", state=SkillState.DRAFT))
    refused = run("assign", "a-draft@1.0.0", "mine")
    assert (refused.code, "is a draft of mine" in refused.err) == (1, True)
    assert "hint: `butlers skills approve a-draft@1.0.0` first" in refused.err
    assert run("approve", "a-draft@1.0.0").code == 0
    assert run("assign", "a-draft@1.0.0", "mine").code == 0


def test_approved_draft_can_be_assigned(run: Run, tmp_path: Path, home: Path) -> None:
    registry = SkillRegistry(home)
    draft = NewSkill(pack(tmp_path), by="me", state=SkillState.DRAFT)
    registry.register(draft)
    own_butler(tmp_path)
    refused = run("assign", "social-media", "mine")
    assert (refused.code, "is a draft of me" in refused.err) == (1, True)
    assert "1.0.0     1.0.0   me" in run("list").out
    assert run("approve", "social-media").out == "approved social-media@1.0.0\n"
    assert "now names social-media@1.0.0" in run("assign", "social-media", "mine").out
    assert "already names" in run("assign", "social-media@1.0.0", "mine").out
    [listed] = run("list", "--json").json
    assert listed["usedBy"] == ["mine"]
    assert run("approve", "gone").code == 1
    assert run("assign", "social-media", "nobody").code == 1


def test_registration_warns_of_a_cycle(run: Run, tmp_path: Path) -> None:
    one = write_pack(tmp_path / "one", id="one", owner="me", dependencies=["two"])
    two = write_pack(tmp_path / "two", id="two", owner="me", dependencies=["one"])
    assert "circular" not in run("register", one).err
    told = run("register", two)
    assert told.code == 0
    assert "no butler can use two: circular dependency: two → one → two" in told.err
    assert run("remove", "one").code == 0
