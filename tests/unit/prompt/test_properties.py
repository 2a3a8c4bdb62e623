"""Properties of any prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import VisibilityExpansionRequired
from butlers.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    SectionVisibility,
    Session,
    Skill,
    SkillsSection,
    Tool,
    ToolContext,
    ToolResult,
)
from butlers.prompt.prompt import OpenSections, expand, open_sections


@dataclass(frozen=True)
class Words:
    one: str = "1"
    two: str = "2"


def handler(params: Words, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult(message="ok")


@dataclass
class Maker:
    """Builder of sections with unique keys and tools."""

    number: int = 0

    def key(self) -> str:
        self.number += 1
        return f"k{self.number}"

    def section(self, plan: Any) -> Section[Any]:
        body, summarized, tools, enabled, inner = plan
        key = self.key()
        more: dict[str, Any] = {
            "title": key,
            "key": key,
            "template": body,
            "visibility": SectionVisibility.SUMMARY if summarized else SectionVisibility.FULL,
            "tools": [
                Tool[Words, None](name=f"{key}-{n}", description="x", handler=handler)
                for n in range(tools)
            ],
            "enabled": lambda _: enabled,
        }
        if len(inner) == 2:  # some of them are skills
            return Skill(name=key, description=body or "x", **{**more, "template": body or "x"})
        more["children"] = [self.section(one) for one in inner]
        return MarkdownSection(summary="short $one", **more)


LOADED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine
TEXT = st.text(alphabet=st.sampled_from("$ {}abone two\n#[]`\\%é\ud800"), max_size=30).map(
    lambda text: text.replace("<", "").strip() or "x"
)
LEAF = st.tuples(TEXT, st.booleans(), st.integers(0, 2), st.booleans(), st.just(()))
PLANS = st.recursive(
    LEAF,
    lambda inner: st.tuples(
        TEXT, st.booleans(), st.integers(0, 2), st.booleans(), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def prompts(draw: st.DrawFn) -> Prompt[None]:
    maker = Maker()
    sections = [maker.section(plan) for plan in draw(st.lists(PLANS, max_size=4))]
    skills = [one for one in sections if isinstance(one, Skill)]
    others = [one for one in sections if not isinstance(one, Skill)]
    template = PromptTemplate[None](
        ns="any", key="one", sections=[*others, SkillsSection(skills=skills)]
    )
    return Prompt(template).bind(Words(draw(TEXT), draw(TEXT)))


def names(rendered: RenderedPrompt) -> set[str]:
    return {tool.name for tool in rendered.tools}


def open_one(prompt: Prompt[None], session: Session, path: str) -> None:
    rendered = prompt.render(session=session)
    context = ToolContext(prompt, rendered, session)
    try:
        open_sections(OpenSections((path,)), context=context)
    except VisibilityExpansionRequired as asked:
        expand(prompt, session, rendered, asked)


@LOADED
@given(prompts())
def test_rendering_is_deterministic(prompt: Prompt[None]) -> None:
    assert prompt.render().text == prompt.render().text
    assert prompt.render(installed=True) == prompt.render(installed=True)


@LOADED
@given(prompts())
def test_every_visible_tool_has_a_visible_section(prompt: Prompt[None]) -> None:
    rendered = prompt.render()
    shown = {
        tool.name for one in rendered.all() if not one.is_summarized for tool in one.section.tools
    }
    assert names(rendered) - {"open_sections"} == shown
    assert ("open_sections" in names(rendered)) == bool(rendered.summarized)
    for one in rendered.all():
        assert f"({one.path})" in rendered.text


@LOADED
@given(prompts(), st.data())
def test_opening_a_section_never_removes_text_or_tools(
    prompt: Prompt[None], data: st.DataObject
) -> None:
    session = Session()
    while (before := prompt.render(session=session)).summarized:
        path = data.draw(st.sampled_from([one.path for one in before.summarized]))
        open_one(prompt, session, path)
        after = prompt.render(session=session)
        assert names(before) - {"open_sections"} <= names(after)
        assert {one.path for one in before.all()} <= {one.path for one in after.all()}
        assert path not in {one.path for one in after.summarized}
    assert "open_sections" not in names(before)


@LOADED
@given(TEXT, TEXT, TEXT)
def test_no_template_breaks_a_render(body: str, one: str, summary: str) -> None:
    section = MarkdownSection[Words](title="A", key="a", template=body, summary=summary)
    skill = Skill[Words](name="s", description=one, title="S", key="s", template=body)
    made = Prompt(
        PromptTemplate[None](ns="n", key="k", sections=[section, SkillsSection(skills=[skill])])
    ).bind(Words(one))
    for visibility in SectionVisibility:
        made.render(visibility=dict.fromkeys(("a", "skills.s"), visibility))
    skill.to_skill_md(Words(one))
