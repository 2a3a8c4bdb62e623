"""Examples of docs/sections.md, run as written, and the text that the model receives."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from butlers.prompt import MarkdownSection, Prompt, PromptTemplate, Skill, SkillsSection
from integration.prompt.adapters.conftest import Adapt
from support import npm
from support.cli_session import PATH
from support.clis import CLAUDE
from support.fake_model import FakeModel, Say, Use
from support.prompt_parts import Heard, Linter, offers

PAGE = Path(__file__).resolve().parents[4] / "docs" / "sections.md"
ABSOLUTE = re.compile(r'"(/(?:opt|shared|skills)\b)')
Story = Callable[..., dict[str, Any]]


def code(heading: str) -> str:
    section = PAGE.read_text().split(f"\n{heading}")[1].split("\n### ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Run a story after the page's prelude and return the names that it defines."""

    def execute(text: str, names: dict[str, Any]) -> None:
        exec(compile(text, PAGE, "exec", dont_inherit=True), names)  # noqa: S102

    def run(number: int) -> dict[str, Any]:
        module = ModuleType(f"story_{number}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        names = module.__dict__
        names["__file__"] = str(tmp_path / "project" / "app" / "main.py")
        execute(code("### The prelude"), names)
        for folder in (
            "opt/company/skills/security-review",
            "opt/skills/compliance",
            "shared/skills/documentation",
            "skills/security",
            "project/skills/code-style",
        ):
            names["make_skill"](tmp_path / folder)
        execute(ABSOLUTE.sub(rf'"{tmp_path}\1', code(f"### {number}. ")), names)
        return names

    return run


def test_prompt_can_be_rendered_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code("## Six examples"), PAGE, "exec", dont_inherit=True), {})  # noqa: S102
    assert capsys.readouterr().out == "## 1. Task (task)\n\nReview the code.\n"


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
    assert "access tools: run_tests, coverage.]" in turn.user


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
    """The same section, with a skill whose tool only one language has."""
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
