"""Variables of public skills: read from their metadata, declared at install, granted later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from butlers.skills.check.rules import check
from butlers.skills.reader import read_skill
from butlers.skills.registry.butler_packs import load_packs
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.requirements import MAX_VARIABLES, wanted_variables
from butlers.skills.skill import SkillSpec
from butlers.skills.skill_set import ButlerSkillSet
from support.skills import write_files, write_skill_md
from support.skills_cli import Run

SCRIPT = "import os\nprint(os.environ['SHOP_KEY'], os.environ['SHOP_REGION'])\n"


@pytest.mark.parametrize(
    "front",
    [
        'metadata: {"openclaw": {"requires": {"env": ["SHOP_KEY"]}}}\n',
        "metadata:\n  openclaw:\n    primaryEnv: SHOP_KEY\n",
        """metadata: '{"clawdbot":{"requires":{"env":["SHOP_KEY"]}}}'\n""",
        """metadata:\n  openclaw: '{"requires":{"env":["SHOP_KEY"]}}'\n""",
        "env: [SHOP_KEY]\n",
        "env:\n  SHOP_KEY: the key of the shop\n",
        "required_environment_variables:\n  - name: SHOP_KEY\n    prompt: Key\n",
        "required_environment_variables: [SHOP_KEY]\n",
        "requires:\n  env: SHOP_KEY\n",
        "environment-variables:\n  required: [SHOP_KEY]\n",
        "metadata:\n  env: SHOP_KEY\n",
    ],
)
def test_each_spelling_of_a_wanted_variable_is_read(tmp_path: Path, front: str) -> None:
    folder = write_skill_md(tmp_path / "shop", f"name: shop\ndescription: Shops.\n{front}")
    skill = read_skill(folder).skill
    assert skill is not None
    assert wanted_variables(skill) == ("SHOP_KEY",)


@pytest.mark.parametrize(
    "extra",
    [
        {"env": "production"},
        {"env": ["LD_PRELOAD", "PATH", "BUTLERS_TOKEN"]},
        {"environment": ["linux", 5, None, {"name": 3}]},
        {"env": "{" * 50_000},
    ],
)
def test_other_values_name_no_variable(extra: dict[str, object]) -> None:
    assert wanted_variables(SkillSpec("a", "x", extra=extra)) == ()


def test_number_of_variables_is_limited() -> None:
    names = [f"KEY_{number}" for number in range(100_000)]
    assert len(wanted_variables(SkillSpec("a", "x", extra={"env": names}))) == MAX_VARIABLES


def shop(tmp_path: Path) -> Path:
    wanted = '{"openclaw": {"requires": {"env": ["SHOP_KEY"]}}}'
    front = f"name: shop\ndescription: Shops.\nversion: 1.0.0\nmetadata: {wanted}\n"
    return write_files(write_skill_md(tmp_path / "shop", front), {"scripts/buy.py": SCRIPT})


def test_variables_of_the_metadata_are_declared_and_shown(
    run: Run, home: Path, tmp_path: Path
) -> None:
    folder = shop(tmp_path)
    undeclared = [
        found.entry for found in check(folder).diagnostics if found.code == "content-undeclared-env"
    ]
    assert undeclared == ["SHOP_REGION"]
    ran = run("install", folder, "--yes", "--env", "SHOP_REGION")
    assert ran.code == 0
    assert "may read    the variable SHOP_KEY" in ran.err
    assert "may read    the variable SHOP_REGION" in ran.err
    (loaded,) = load_packs(SkillRegistry(home), "person", ["shop@1.0.0"]).packs
    assert loaded.skill.env_vars == ("SHOP_KEY", "SHOP_REGION")
    assert run("install", folder, "--yes", "--env", "LD_PRELOAD").code == 1


def test_granted_variable_reaches_the_script_until_it_is_revoked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "k-1")
    monkeypatch.setenv("SHOP_REGION", "north")
    assert run("install", shop(tmp_path), "--yes").code == 0
    assert run("run", "shop@1.0.0", "buy").code == 1  # KeyError: SHOP_REGION
    granted = run("grant", "shop", "SHOP_REGION")
    assert granted.out == "shop@1.0.0 is given SHOP_REGION\n"
    answer = run("run", "shop@1.0.0", "buy", "--json")
    assert answer.json["success"]
    assert run("show", "shop", "--json").json["capabilities"]["envVars"] == [
        "SHOP_KEY",
        "SHOP_REGION",
    ]
    assert run("grant", "shop", "SHOP_REGION", "--revoke").code == 0
    assert run("run", "shop@1.0.0", "buy").code == 1
    assert run("grant", "shop", "LD_PRELOAD").code == 1


def test_update_from_the_same_origin_keeps_the_grant(run: Run, tmp_path: Path) -> None:
    folder = shop(tmp_path)
    run("install", folder, "--yes")
    run("grant", "shop", "SHOP_REGION")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace("1.0.0", "1.1.0"))
    assert run("install", folder).code == 0  # no new capability, so no question
    (entry,) = run("list", "--json").json
    assert entry["releases"]["1.1.0"]["granted"] == ["SHOP_REGION"]
    elsewhere = folder.rename(tmp_path / "other")
    (elsewhere / "SKILL.md").write_text(text.replace("1.0.0", "1.2.0"))
    assert run("install", elsewhere, "--yes").code == 0
    (entry,) = json.loads(run("list", "--json").out)
    assert "granted" not in entry["releases"]["1.2.0"]


def test_own_skill_declares_the_variables_of_its_metadata(tmp_path: Path) -> None:
    shop(tmp_path / "butler" / "skills")
    skills = ButlerSkillSet(SkillRegistry(tmp_path / "home"), "b", tmp_path / "butler")
    assert skills.find("shop").skill.env_vars == ("SHOP_KEY",)
