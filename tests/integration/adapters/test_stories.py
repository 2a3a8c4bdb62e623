"""The examples of docs/sections.md, as they stand there, and what a model receives from them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from butlers.prompt import MarkdownSection, Prompt, PromptTemplate, Skill, SkillRef, SkillsSection
from integration.adapters.conftest import Adapt
from integration.adapters.parts import Heard, Linter, offers
from integration.runtimes.bench import PATH
from integration.runtimes.clis import CLAUDE
from support import npm
from support.fake_model import FakeModel, Say, Use
from support.skills import write_files, write_skill_md

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sections.md"
ABSOLUTE = re.compile(r'"(/(?:opt|shared|skills)\b)')
Story = Callable[..., dict[str, Any]]


def code(number: int) -> str:
    section = PAGE.read_text().split(f"\n### {number}. ")[1].split("\n### ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(block)


def write_folder(path: Path) -> None:
    name = path.name
    write_skill_md(path, f"name: {name}\ndescription: All about {name}.\n", f"The {name} word.\n")
    write_files(path, {"scripts/scan.sh": "#!/bin/sh\necho scanned\n", "data/p.json": "{}"})


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """What a story has defined, run with the folders and tools that it mentions."""
    for folder in (
        "opt/company/skills/security-review",
        "opt/skills/compliance",
        "shared/skills/documentation",
        "skills/security",
        "project/skills/code-style",
    ):
        write_folder(tmp_path / folder)

    def run(number: int, **more: Any) -> dict[str, Any]:
        tool = Linter().tool
        module = ModuleType(f"story_{number}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        names = module.__dict__
        names |= {
            "__file__": str(tmp_path / "project" / "app" / "main.py"),
            "Skill": Skill,
            "SkillRef": SkillRef,
            "SkillsSection": SkillsSection,
            "run_tests_tool": tool,
            "coverage_tool": _named("coverage"),
            **more,
        }
        text = ABSOLUTE.sub(rf'"{tmp_path}\1', code(number))
        exec(compile(text, f"story {number}", "exec", dont_inherit=True), names)  # noqa: S102
        return names

    return run


def _named(name: str) -> Any:
    tool = Linter().tool
    tool.name = name
    return tool


def around(section: SkillsSection) -> Prompt[None]:
    task = MarkdownSection(title="Task", key="task", template="Review the code.")
    return Prompt(PromptTemplate[None](ns="story", key="any", sections=[task, section]))


@pytest.mark.scenario("S004-27")
async def test_story_1_native_skills(
    story: Story, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{npm.installed('clis')}:{PATH}")
    for name, value in CLAUDE.environment(model.url).items():
        monkeypatch.setenv(name, value)
    model.script = [Use("Skill", skill="code-review"), Say("reviewed")]
    defined = await asyncio.to_thread(story, 1)
    assert defined["response"].text == "reviewed"
    first, last = model.turns
    assert "Review the Python code in the workspace." in first.user
    assert "Code review workflows and checklists for Python projects." in first.text
    assert "Safe refactoring patterns and techniques." in first.text
    assert "Verify coverage meets 80% threshold" not in first.text
    assert "Verify coverage meets 80% threshold" in last.text
    assert "Extract Method" not in last.text


@pytest.mark.scenario("S004-28")
async def test_story_2_a_tool_that_appears(story: Story, adapt: Adapt, model: FakeModel) -> None:
    defined = story(2)
    calls: list[Any] = []
    handler = defined["lint_handler"]

    def counted(params: Any, *, context: Any) -> Any:
        calls.append(params)
        return handler(params, context=context)

    defined["lint_tool"].handler = counted
    model.script = [
        Use("open_sections", section_keys=["skills.linting"], reason="to lint"),
        Use("lint_code", paths=["a.py", "b.py"]),
        Say("linted"),
    ]
    response = await adapt().evaluate_async(
        around(defined["skills_section"]), session=Heard().session
    )
    first, second, third = model.turns
    assert not offers(first, "lint_code")
    assert "Run on changed files first" not in first.text
    assert "Run on changed files first" in second.results[0]
    assert offers(second, "lint_code")
    assert "Linting complete\nFound 5 issues, fixed 3" in third.results[1]
    assert calls == [defined["LintParams"](paths=("a.py", "b.py"))]
    assert response.text == "linted"


@pytest.mark.scenario("S004-29")
async def test_story_3_both_kinds(story: Story, adapt: Adapt, model: FakeModel) -> None:
    section = story(3)["skills_section"]
    await adapt().evaluate_async(around(section), session=Heard().session)
    (turn,) = model.turns
    assert "System architecture principles." in turn.text
    assert "[Skill: architecture]" not in turn.text
    assert "[Skill: testing] Testing workflows with execution tools." in turn.user
    assert "access tools: lint_code, coverage.]" in turn.user


@pytest.mark.scenario("S004-30")
@pytest.mark.parametrize("switch", ["0", "1"])
async def test_story_4_skills_in_folders(
    story: Story,
    adapt: Adapt,
    model: FakeModel,
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
) -> None:
    monkeypatch.setenv("ENABLE_COMPLIANCE", switch)
    section = story(4)["skills_section"]
    names = ["security-review", "code-style", *(["compliance"] if switch == "1" else [])]
    model.script = [*(Use("Skill", skill=name) for name in names), Say("ok")]
    await adapt().evaluate_async(around(section), session=Heard().session)
    first, last = model.turns[0], model.turns[-1]
    for name in ("security-review", "code-style", "compliance"):
        assert (f"All about {name}." in first.text) == (name in names)
        assert f"The {name} word." not in first.text
        assert (f"The {name} word." in last.text) == (name in names)


@pytest.mark.scenario("S004-31")
async def test_story_5_code_and_folders(story: Story, adapt: Adapt, model: FakeModel) -> None:
    section = story(5)["skills_section"]
    assert [one.name for one in section.all_skills] == ["testing", "documentation", "naming"]
    await adapt().evaluate_async(around(section), session=Heard().session)
    (turn,) = model.turns
    assert "[Skill: testing]" in turn.user
    for text in ("All about documentation.", "Naming conventions guide."):
        assert text in turn.text
        assert f"] {text}" not in turn.text  # by the CLI's own listing


@pytest.mark.scenario("S004-32")
@pytest.mark.parametrize("switch", ["0", "1"])
async def test_story_6_skills_by_what_is_bound(
    story: Story,
    adapt: Adapt,
    model: FakeModel,
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
) -> None:
    monkeypatch.setenv("SECURITY_REVIEW", switch)
    defined = story(6)
    await adapt().evaluate_async(defined["prompt"], session=Heard().session)
    other = defined["prompt"].bind(defined["ReviewParams"](language="typescript"))
    await adapt().evaluate_async(other, session=Heard().session)
    python, typescript = model.turns
    assert "Review the python code." in python.user
    assert "Python-specific review guidance." in python.text
    assert "TypeScript-specific review guidance." not in python.text
    assert "TypeScript-specific review guidance." in typescript.text
    assert "Python-specific review guidance." not in typescript.text
    assert ("All about security." in python.text) == (switch == "1")


@pytest.mark.scenario("S004-24", "S004-32")
async def test_story_6_with_a_tool_of_the_skill_that_is_bound(
    story: Story, adapt: Adapt, model: FakeModel
) -> None:
    """The same section, and a skill with a tool that only one of the languages has."""
    linter, defined = Linter(), story(6)
    tooled = Skill(
        name="linting",
        description="Linting.",
        title="Linting",
        key="linting",
        template="For $language.",
        tools=[linter.tool],
        enabled=lambda p: p.language == "python",
    )
    section = SkillsSection(skills=[*defined["skills_section"].skills, tooled])
    prompt = around(section).bind(defined["ReviewParams"](language="python"))
    model.script = [
        Use("open_sections", section_keys=["skills.linting"]),
        Use("lint_code", paths=["a.py"]),
        Say("ok"),
    ]
    await adapt().evaluate_async(prompt, session=Heard().session)
    first, second, _ = model.turns
    assert not offers(first, "lint_code")
    assert "For python." in second.results[0]
    assert offers(second, "lint_code")
    assert linter.calls == [("a.py",)]
    model.turns.clear()
    model.script = [Say("ok")]
    other = prompt.bind(defined["ReviewParams"](language="typescript"))
    await adapt().evaluate_async(other, session=Heard().session)
    assert "linting" not in model.turns[0].user
    assert not offers(model.turns[0], "open_sections")
