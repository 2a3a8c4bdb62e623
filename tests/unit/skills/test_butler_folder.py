"""Skills in a butler's own folder: their names are strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.daemon.skills import folder_problems
from support.skills import write_files
from support.skills_cli import Run

SKILL = {"SKILL.md": "---\nname: {0}\ndescription: Plans the day.\n---\nPlan it.\n"}


def butler(folder: Path, *names: str) -> Path:
    files = {f"skills/{name}/SKILL.md": SKILL["SKILL.md"].format(name) for name in names}
    config = {"butler.toml": '[butler]\nname = "mine"\nport = 0\n'}
    return write_files(folder / "mine", files | config)


@pytest.mark.scenario("S000-17")
@pytest.mark.parametrize("name", ["Morning_Briefing", "morning briefing"])
def test_wrong_name_in_a_butlers_folder_is_not_valid(run: Run, tmp_path: Path, name: str) -> None:
    skills = butler(tmp_path, name, "good-one") / "skills"
    for given in (skills, skills / name):
        checked = run("check", given)
        assert checked.code == 1
        assert "error folder-name: the folder name" in checked.out
        assert "rename it to morning-briefing" in checked.out
    assert run("check", skills / "good-one").code == 0


def test_name_of_another_persons_skill_is_a_warning(run: Run, tmp_path: Path) -> None:
    files = {"SKILL.md": SKILL["SKILL.md"].format("morning-briefing")}
    checked = run("check", write_files(tmp_path / "skills" / "Morning_Briefing", files))
    assert checked.code == 0
    assert "warning folder-name" in checked.out


def test_problems_of_a_butlers_folder_are_found(tmp_path: Path) -> None:
    directory = butler(tmp_path, "Morning_Briefing", "good-one", "custom/made_up")
    found = folder_problems(directory)
    assert [problem.file.name for problem in found] == ["Morning_Briefing", "made_up"]
    assert folder_problems(tmp_path) == ()


def test_two_skills_of_one_name_are_found(tmp_path: Path) -> None:
    directory = butler(tmp_path, "one", "two")
    (directory / "skills/two/SKILL.md").write_text(SKILL["SKILL.md"].format("one"))
    assert [problem.code for problem in folder_problems(directory)] == ["skill-shadows"]
