"""Rendering: text and tools of enabled and open sections only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from butlers.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    PromptValidationError,
    Section,
    SectionVisibility,
    Session,
    Skill,
    SkillsSection,
    Style,
    Tool,
    ToolContext,
    ToolResult,
    VerbatimSkill,
)

SUMMARY, FULL = SectionVisibility.SUMMARY, SectionVisibility.FULL


@dataclass(frozen=True)
class Place:
    city: str = "Oslo"
    big: bool = True


def do_nothing(params: Place, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult(message="done")


def a_tool(name: str) -> Tool[Any, Any]:
    return Tool[Place, None](name=name, description="Does nothing.", handler=do_nothing)


def prompt(*sections: Section[Any], **more: Any) -> Prompt[None]:
    return Prompt(PromptTemplate[None](ns="test", key="one", sections=sections, **more))


def text(key: str, template: str = "Body.", **more: Any) -> MarkdownSection[Any]:
    return MarkdownSection(title=key.title(), key=key, template=template, **more)


def tools_of(rendered: Any) -> list[str]:
    return [tool.name for tool in rendered.tools]


def test_sections_are_numbered_and_nested_by_their_depth() -> None:
    made = prompt(
        text("task", children=[text("first"), text("second", children=[text("deep")])]),
        text("end"),
    ).render()
    assert made.text == "\n\n".join(
        (
            "## 1. Task (task)\n\nBody.",
            "### 1.1. First (task.first)\n\nBody.",
            "### 1.2. Second (task.second)\n\nBody.",
            "#### 1.2.1. Deep (task.second.deep)\n\nBody.",
            "## 2. End (end)\n\nBody.",
        )
    )


def test_a_section_is_filled_with_the_params_of_its_type() -> None:
    section = MarkdownSection[Place](title="A", key="a", template="  In $city, ${city}.\n")
    bound = prompt(section).bind(Place("Rome"))
    assert bound.render().text == "## 1. A (a)\n\nIn Rome, Rome."
    assert prompt(section).render().text.endswith("In Oslo, Oslo.")
    fallback = MarkdownSection(title="A", key="a", template="$city", default_params=Place("Bern"))
    assert prompt(fallback).render().text.endswith("Bern")
    assert prompt(fallback).bind(Place("Rome")).bind(Place("Kiel")).render().text.endswith("Kiel")


def test_unknown_placeholders_stay_unchanged() -> None:
    body = "costs $5, `echo $HOME ${HOME:-x} $1 $( ls )` $$ ${ $"
    assert prompt(text("a", body)).render().text.endswith(body.replace("$$", "$"))


def test_missing_params_are_named_in_the_error() -> None:
    @dataclass(frozen=True)
    class Needed:
        word: str

    section = MarkdownSection[Needed](title="A", key="a", template="$word")
    with pytest.raises(PromptValidationError, match="a section needs Needed") as error:
        prompt(section).render()
    assert error.value.hint == "bind(Needed(…)), or give the section default_params"
    with pytest.raises(PromptValidationError, match="instances of a dataclass"):
        prompt(section).bind({"word": "x"})


def test_ambiguous_unclaimed_params_are_rejected() -> None:
    @dataclass(frozen=True)
    class Other:
        word: str = "x"

    with pytest.raises(PromptValidationError, match="any of Other, Place"):
        prompt(text("a")).bind(Place(), Other()).render()


def test_disabled_section_has_no_number_and_no_tool() -> None:
    made = prompt(
        text("a", enabled=lambda place: place.big, tools=[a_tool("one")], children=[text("x")]),
        text("b", tools=[a_tool("two")]),
    ).bind(Place(big=False))
    assert made.render().text == "## 1. B (b)\n\nBody."
    assert tools_of(made.render()) == ["two"]
    assert tools_of(made.bind(Place(big=True)).render()) == ["one", "two"]


def test_failing_predicate_is_reported_with_its_section() -> None:
    made = prompt(text("a", enabled=lambda place: place.nowhere)).bind(Place())
    with pytest.raises(PromptValidationError, match="selector of the section a failed"):
        made.render()


@pytest.mark.parametrize(
    "selector", [SUMMARY, lambda: SUMMARY, lambda place: SUMMARY if place.big else FULL]
)
def test_summary_replaces_a_section_and_its_children(selector: Any) -> None:
    section = text(
        "a",
        "The whole.",
        summary="In short, $city.",
        visibility=selector,
        tools=[a_tool("one")],
        children=[text("x", tools=[a_tool("two")])],
    )
    made = prompt(section).bind(Place())
    assert made.render().text == (
        "## 1. A (a)\n\nIn short, Oslo.\n\n---\n"
        '[This section is summarized. Call `open_sections` with key "a"\n'
        "to view full content and access tools: one, two.]"
    )
    assert tools_of(made.render()) == ["open_sections"]
    opened = made.render(visibility={"a": FULL})
    assert "The whole." in opened.text
    assert tools_of(opened) == ["one", "two"]


def test_explicit_visibility_overrides_session_and_selector() -> None:
    made = prompt(text("a", summary="Short.", visibility=SUMMARY))
    session = Session()
    session.set_visibility("test", "one", {"a": FULL})
    session.set_visibility("test", "other", {"a": SUMMARY})
    assert "Short." in made.render().text
    assert "Body." in made.render(session=session).text
    assert "Short." in made.render(session=session, visibility={"a": SUMMARY}).text


def test_override_of_an_unknown_section_is_rejected() -> None:
    with pytest.raises(PromptValidationError, match=r"no section a\.y"):
        prompt(text("a", children=[text("x")])).render(visibility={"a.y": FULL})


def test_override_text_replaces_a_body_if_the_section_accepts_it() -> None:
    template = PromptTemplate[None](
        ns="n", key="k", sections=[text("a"), text("b", accepts_overrides=False)]
    )
    made = Prompt(template, overrides={"a": "Other, $city."}).bind(Place())
    assert made.render().text.startswith("## 1. A (a)\n\nOther, Oslo.")
    with pytest.raises(PromptValidationError, match="b does not accept overrides"):
        Prompt(template, overrides={"b": "Other."}).render()


def test_missing_summary_is_reported_at_construction_or_when_chosen() -> None:
    with pytest.raises(PromptValidationError, match="has no summary"):
        text("a", visibility=SUMMARY)
    with pytest.raises(PromptValidationError, match="has no summary"):
        prompt(text("a")).render(visibility={"a": SUMMARY})


@pytest.mark.parametrize("key", ["", "a.b", "A", "a b", "-a", "x" * 65, "é"])
def test_invalid_section_key_is_rejected(key: str) -> None:
    with pytest.raises(PromptValidationError, match="is not a valid section key"):
        MarkdownSection(title="A", key=key, template="x")


def test_duplicate_keys_and_tools_are_rejected() -> None:
    with pytest.raises(PromptValidationError, match=r"two sections a\.x"):
        prompt(text("a", children=[text("x"), text("x")]))
    with pytest.raises(PromptValidationError, match="the tool one belongs to a and to b"):
        prompt(text("a", tools=[a_tool("one")]), text("b", tools=[a_tool("one")]))
    with pytest.raises(PromptValidationError, match="open_sections belongs to the prompt"):
        prompt(text("a", tools=[a_tool("open_sections")]))


def test_plain_style_renders_skill_pack_headings() -> None:
    skill = Skill(
        name="mail", description="Sends mail.", title="Mail (v1.2.0)", key="mail", template="How."
    )
    made = prompt(
        SkillsSection(title="Available Skills", skills=[skill]),
        style=Style(numbered=False, opener="skill_open"),
    )
    assert made.render().text == (
        "# Available Skills\n\n## Mail (v1.2.0)\n\n[Skill: mail] Sends mail.\n\n---\n"
        '[This skill is summarized. Call `skill_open` with key "skills.mail"\n'
        "to view full workflow.]"
    )
    full = made.render(visibility={"skills.mail": FULL})
    assert full.text == "# Available Skills\n\n## Mail (v1.2.0)\n\nHow."


class PackStyle(Style):
    """Style of packs in a butler's system prompt."""

    def suffix(self, section: Section[Any], path: str, tools: Sequence[str]) -> str:
        return f'`skill_open` with "{section.key}" says how.'


def test_style_subclass_changes_headings_and_suffix() -> None:
    packs = [
        VerbatimSkill(
            name=name,
            description=f"Does {name}.",
            summary=f"Does {name}.",
            title=f"{name.title()} (v1.0.0)",
            key=name,
            template="Costs $$5 <b>$HOME</b>.",
        )
        for name in ("mail", "cron")
    ]
    made = prompt(
        SkillsSection(title="Available Skills", skills=packs), style=PackStyle(numbered=False)
    )
    assert made.render().text == (
        "# Available Skills\n\n"
        '## Mail (v1.0.0)\n\nDoes mail.\n\n`skill_open` with "mail" says how.\n\n'
        '## Cron (v1.0.0)\n\nDoes cron.\n\n`skill_open` with "cron" says how.'
    )
    opened = made.render(visibility=dict.fromkeys(("skills.mail", "skills.cron"), FULL)).text
    assert opened.count("Costs $$5 <b>$HOME</b>.") == 2


def test_skill_in_two_sections_is_rejected() -> None:
    skill = Skill(name="mail", description="x", title="Mail", key="mail", template="How.")
    with pytest.raises(PromptValidationError, match="two skills named mail"):
        prompt(SkillsSection(key="a", skills=[skill]), SkillsSection(key="b", skills=[skill]))


def test_output_type_adds_a_response_format() -> None:
    made = Prompt(PromptTemplate[Place](ns="n", key="k", sections=[text("a")])).render()
    assert made.output_type is Place
    assert "## 2. Response Format (response-format)" in made.text
    assert "Answer with nothing but one fenced JSON code block" in made.text
    assert '"city"' in made.text
    with pytest.raises(PromptValidationError, match="or a dataclass"):
        Prompt(PromptTemplate[int](ns="n", key="k")).render()
