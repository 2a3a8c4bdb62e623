"""The parts of the prompts that are evaluated here: a skill with a tool that counts its calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from butlers.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Section,
    Session,
    Skill,
    SkillsSection,
    Tool,
    ToolContext,
    ToolResult,
)


@dataclass(frozen=True)
class LintParams:
    paths: tuple[str, ...]


@dataclass(frozen=True)
class LintResult:
    issues: int
    fixed: int

    def render(self) -> str:
        return f"Found {self.issues} issues, fixed {self.fixed}"


@dataclass
class Linter:
    calls: list[tuple[str, ...]] = field(default_factory=list)
    contexts: list[ToolContext] = field(default_factory=list)

    def handler(self, params: LintParams, *, context: ToolContext) -> ToolResult[LintResult]:
        self.calls.append(params.paths)
        self.contexts.append(context)
        return ToolResult(message="Linting complete", value=LintResult(issues=5, fixed=3))

    @property
    def tool(self) -> Tool[Any, Any]:
        return Tool[LintParams, LintResult](
            name="lint_code",
            description="Run ruff linter on specified paths",
            handler=self.handler,
        )

    @property
    def skill(self) -> Skill[Any]:
        return a_skill("linting", template="Use `lint_code`. AMARANTH.", tools=[self.tool])


def a_skill(name: str, **more: Any) -> Skill[Any]:
    wanted = {"description": f"All of {name}.", "title": name.title(), "key": name}
    return Skill(name=name, **{**wanted, "template": f"How to {name}.", **more})


def a_prompt(*skills: Any, sections: tuple[Section[Any], ...] = ()) -> Prompt[None]:
    task = MarkdownSection(title="Task", key="task", template="Review the code.")
    return Prompt(
        PromptTemplate[None](
            ns="review", key="python", sections=[task, *sections, SkillsSection(skills=skills)]
        )
    )


@dataclass
class Heard:
    """A session that remembers what was published."""

    events: list[Any] = field(default_factory=list)
    session: Session = field(default_factory=Session)

    def on(self, *kinds: type) -> Heard:
        for kind in kinds:
            self.session.bus.subscribe(kind, self.events.append)
        return self


def offers(turn: Any, tool: str) -> bool:
    return turn.find(tool) is not None
