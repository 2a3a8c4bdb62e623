"""Skill, SkillRef and SkillsSection."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from butlers.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    PromptValidationError,
    SectionVisibility,
    Skill,
    SkillInstallationError,
    SkillParams,
    SkillRef,
    SkillRefError,
    SkillsSection,
    SkillsSectionParams,
    Tool,
    ToolContext,
    ToolResult,
    VerbatimSkill,
)
from butlers.skills.registry import packs
from support.skills import write_files, write_skill_md


@dataclass(frozen=True)
class Paths:
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Language:
    language: str = "python"


def lint(params: Paths, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult(message="linted")


LINT = Tool[Paths, None](name="lint_code", description="Lints.", handler=lint)


def a_skill(name: str = "code-review", **more: Any) -> Skill[Any]:
    wanted = {"description": f"All of {name}.", "title": name.title(), "key": name}
    return Skill(name=name, **{**wanted, "template": f"How to {name}.", **more})


def a_ref(root: Path, name: str, **more: Any) -> SkillRef:
    return SkillRef(a_folder(root, name), **more)


def a_folder(root: Path, name: str) -> Path:
    return write_skill_md(root / name, f"name: {name}\ndescription: About {name}.\n", "Costs $5.\n")


def front(text: str) -> Any:
    _, head, _ = text.split("---\n", 2)
    return yaml.safe_load(head)


# -- a skill ---------------------------------------------------------------------------------------


@pytest.mark.scenario("S004-01")
@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a b", "a.b", "é", "x" * 65, "a\n"])
def test_invalid_skill_name_fails_at_construction(name: str) -> None:
    with pytest.raises(PromptValidationError, match="is not a valid skill name"):
        a_skill(name, key="k", title="T")


@pytest.mark.scenario("S004-01")
@pytest.mark.parametrize("name", ["a", "0", "a-b-c", "a--b", "a-", "x" * 64])
def test_valid_skill_name_is_accepted_and_installable(name: str, tmp_path: Path) -> None:
    section = SkillsSection(skills=[a_skill(name, key="k")])
    assert section.install_skills(skills_dir=tmp_path, params_lookup={}) == (tmp_path / name,)


@pytest.mark.scenario("S004-02")
@pytest.mark.parametrize(
    "description",
    [
        "",
        " ",
        "x" * 1025,
        "a <b>tag</b>",
        "<br/>",
        "</x>",
        "<!DOCTYPE html>",
        "<_tag>",
        "<é>",
        "<:a/>",
        "<!-- -->",
    ],
)
def test_invalid_description_fails_at_construction(description: str) -> None:
    with pytest.raises(PromptValidationError, match="the description of the skill code-review"):
        a_skill(description=description)


@pytest.mark.scenario("S004-02")
@pytest.mark.parametrize("description", ["x", "x" * 1024, "a < b and c > d", "-> next"])
def test_valid_description_is_accepted(description: str) -> None:
    assert a_skill(description=description).description == description


@pytest.mark.parametrize("value", [None, 5, b"x", ["a"], {}])
@pytest.mark.parametrize("field", ["name", "description", "title", "template", "key"])
def test_value_that_is_not_text_is_a_typed_error(field: str, value: Any) -> None:
    fields: dict[str, Any] = {
        "name": "code-review", "description": "Reviews.", "title": "T", "template": "x", "key": "k"
    }  # fmt: skip
    with pytest.raises(PromptValidationError, match=f"the {field} of a skill must be text"):
        Skill(**{**fields, field: value})


def test_wrong_types_of_refs_and_sections_are_typed_errors() -> None:
    with pytest.raises(PromptValidationError, match="must be a path"):
        SkillRef(5)  # type: ignore[arg-type]
    with pytest.raises(PromptValidationError, match="must be a path"):
        SkillRef("a", base_path=5)  # type: ignore[arg-type]
    with pytest.raises(PromptValidationError, match="skills only"):
        SkillsSection(skills=["code-review"])  # type: ignore[list-item]


@pytest.mark.scenario("S004-03")
def test_title_and_template_must_not_be_empty() -> None:
    for wrong in ({"title": ""}, {"title": "  "}, {"template": ""}, {"template": "\n \n"}):
        with pytest.raises(PromptValidationError, match=r"title|empty template"):
            a_skill(**wrong)


@pytest.mark.scenario("S004-03", "S004-06")
def test_skill_template_uses_string_template() -> None:
    skill = Skill[Language](
        name="a", description="d", title="T", key="a", template="  ${language} is $$5 $unknown\n"
    )
    assert skill.render_body(Language("Rust")) == "Rust is $5 $unknown"
    assert skill.to_skill_md(Language("Rust")).endswith("---\n\nRust is $5 $unknown\n")


@pytest.mark.scenario("S004-04")
def test_skill_is_summarized_by_default_with_a_generated_summary() -> None:
    skill = a_skill(description="Costs $5.")
    assert skill.visibility is SectionVisibility.SUMMARY
    assert skill.summary == "[Skill: code-review] Costs $5."
    assert skill.render_summary(SkillParams()) == "[Skill: code-review] Costs $5."
    named = a_skill(summary="In $language.")
    assert named.render_summary(Language("Rust")) == "In Rust."


@pytest.mark.scenario("S004-05")
def test_has_tools_includes_inner_sections() -> None:
    inner = MarkdownSection(title="A", key="a", template="x", tools=[LINT])
    assert not a_skill().has_tools
    assert a_skill(tools=[LINT]).has_tools
    assert a_skill(children=[inner]).has_tools


@pytest.mark.scenario("S004-06")
@pytest.mark.parametrize(
    "description",
    ["Plain.", "key: value # no comment", "'\"{[", "Größe\nzweite Zeile", "- a", "1.0"],
)
def test_skill_md_contains_name_and_description(description: str) -> None:
    skill = a_skill(description=description, template="# Steps\n\n---\n1. $x\n")
    text = skill.to_skill_md(SkillParams())
    assert front(text) == {"name": "code-review", "description": description}
    assert text.endswith("\n---\n\n# Steps\n\n---\n1. $x\n")


def test_inner_sections_are_headings_in_skill_md() -> None:
    inner = MarkdownSection(title="More", key="a", template="In $language.")
    skill = a_skill(children=[inner])
    assert skill.to_skill_md(Language("Rust")).endswith(
        "How to code-review.\n\n## More\n\nIn Rust.\n"
    )


# -- a reference -------------------------------------------------------------------------------------


@pytest.mark.scenario("S004-07")
def test_ref_resolves_by_path_base_or_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_folder(tmp_path / "skills", "style")
    assert SkillRef(str(folder)).resolved_path == folder
    assert SkillRef("skills/style", base_path=tmp_path).resolved_path == folder.resolve()
    monkeypatch.chdir(tmp_path)
    ref = SkillRef(Path("skills/style"))
    assert ref.resolved_path == folder.resolve()
    assert ref.skill_md_path == folder.resolve() / "SKILL.md"
    assert SkillRef(folder, base_path=Path("/nowhere")).resolved_path == folder


@pytest.mark.scenario("S004-08")
def test_name_and_description_of_a_ref_come_from_its_front_matter(tmp_path: Path) -> None:
    folder = write_skill_md(tmp_path / "folder", "name: other-name\ndescription: 'Say: it'\n")
    ref = SkillRef(folder)
    assert (ref.name, ref.description) == ("other-name", "Say: it")


def no_folder(root: Path) -> Path:
    return root / "nowhere"


def a_file(root: Path) -> Path:
    return write_files(root, {"file": "x"}) / "file"


def no_skill_md(root: Path) -> Path:
    return write_files(root / "empty", {"README.md": "x"})


WRONG_FRONTS = [
    "name: a\n",
    "description: x\n",
    "name: Not A Name\ndescription: x\n",
    "name: [a\ndescription: x\n",
    "name: a--\ndescription:\n",
]


@pytest.mark.scenario("S004-09")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (no_folder, "not_found"),
        (a_file, "not_directory"),
        (no_skill_md, "missing_skill_md"),
        (
            lambda root: write_files(root / "a", {"SKILL.md": "# Text only\n"}),
            "invalid_frontmatter",
        ),
        *(
            (lambda root, front=front: write_skill_md(root / "a", front), "invalid_frontmatter")
            for front in WRONG_FRONTS
        ),
    ],
)
def test_invalid_ref_fails_at_construction(tmp_path: Path, make: Any, reason: str) -> None:
    path = make(tmp_path)
    with pytest.raises(SkillRefError) as error:
        SkillRef(path)
    assert (error.value.path, error.value.reason) == (path, reason)
    assert isinstance(error.value, ValueError)


@pytest.mark.scenario("S004-10")
def test_disabled_ref_is_not_read_until_enabled(tmp_path: Path) -> None:
    switch = []
    ref = SkillRef(tmp_path / "nowhere", enabled=lambda: bool(switch))
    section = SkillsSection(skill_refs=[ref])
    made = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section]))
    assert made.render().text == ""
    assert section.install_skills(skills_dir=tmp_path / "skills", params_lookup={}) == ()
    switch.append(1)
    for use in (ref.validate, made.render, lambda: ref.name):
        with pytest.raises(SkillRefError):
            use()


def test_errors_survive_a_context_manager_and_a_note(tmp_path: Path) -> None:
    @contextmanager
    def passing() -> Iterator[None]:
        yield

    with pytest.raises(SkillRefError) as error, passing():
        SkillRef(tmp_path / "nowhere")
    error.value.add_note("seen")
    with pytest.raises(SkillInstallationError) as failed, passing():
        raise SkillInstallationError("x", skill_name="a", source="inline")
    failed.value.add_note("seen")


# -- the section ---------------------------------------------------------------------------------------


@pytest.mark.scenario("S004-11")
def test_skills_section_separates_inline_and_referenced_skills(tmp_path: Path) -> None:
    native, tooled = a_skill("native"), a_skill("tooled", tools=[LINT])
    among, beside = a_ref(tmp_path, "among"), a_ref(tmp_path, "beside")
    section = SkillsSection(skills=[native, among, tooled], skill_refs=[beside])
    assert section.all_skills == (native, among, tooled, beside)
    assert section.inline_skills == (native, tooled)
    assert section.referenced_skills == (among, beside)
    assert section.native_skills == (native,)
    assert section.prompt_skills == (tooled,)
    assert (section.title, section.key) == ("Skills", "skills")


@pytest.mark.scenario("S004-12")
def test_duplicate_skill_names_are_rejected(tmp_path: Path) -> None:
    one, ref = a_skill("same"), a_ref(tmp_path, "same")
    for duplicates in (
        [one, a_skill("same", key="other")],
        [one, ref],
        [ref, a_ref(tmp_path, "same")],
    ):
        with pytest.raises(PromptValidationError, match="two skills with the name same"):
            SkillsSection(skills=duplicates)
    with pytest.raises(PromptValidationError, match="two skills with the name same"):
        SkillsSection(skills=[one], skill_refs=[ref])
    with pytest.raises(PromptValidationError, match="two skills with the key same"):
        SkillsSection(skills=[one, a_skill("other", key="same")])


@pytest.mark.scenario("S004-12")
def test_duplicate_name_is_rejected_once_its_ref_is_enabled(tmp_path: Path) -> None:
    switch = []
    ref = a_ref(tmp_path, "same", enabled=lambda: bool(switch))
    section = SkillsSection(skills=[a_skill("same"), ref])
    switch.append(1)
    with pytest.raises(PromptValidationError, match="two skills with the name same"):
        section.install_skills(skills_dir=tmp_path / "skills", params_lookup={})


@pytest.mark.scenario("S004-13")
def test_enabled_skills_selects_by_name_and_none_means_all(tmp_path: Path) -> None:
    section = SkillsSection(
        skills=[a_skill("one"), a_skill("two", tools=[LINT]), a_ref(tmp_path, "three")]
    )
    made = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section]))
    for wanted, names in ((None, {"one", "two", "three"}), (frozenset({"two", "three"}), None)):
        params = SkillsSectionParams(enabled_skills=wanted)
        names = names or set(wanted or ())
        shown = {one.section.key for one in made.bind(params).render().all()} - {"skills"}
        assert shown == names
        place = tmp_path / f"home-{len(names)}"
        paths = section.install_skills(
            skills_dir=place, params_lookup={SkillsSectionParams: params}
        )
        assert {path.name for path in paths} == names - {"two"}
    none = made.bind(SkillsSectionParams(frozenset())).render()
    assert (none.text, none.tools) == ("", ())


# -- installation ----------------------------------------------------------------------------------------


@pytest.mark.scenario("S004-14")
def test_native_skills_are_written_and_refs_copied(tmp_path: Path) -> None:
    ref = a_ref(tmp_path / "source", "ref-skill")
    skills = [
        Skill[Language](name="a", description="d", title="T", key="a", template="In $language."),
        ref,
        a_skill("tooled", tools=[LINT]),
        a_skill("off", enabled=lambda _: False),
    ]
    place = tmp_path / "home/.claude/skills"
    paths = SkillsSection(skills=skills).install_skills(
        skills_dir=place, params_lookup={Language: Language("Rust")}
    )
    assert paths == (place / "a", place / "ref-skill")
    assert sorted(path.name for path in place.iterdir()) == ["a", "ref-skill"]
    assert (place / "a/SKILL.md").read_text().endswith("In Rust.\n")
    assert (place / "ref-skill/SKILL.md").read_text().endswith("Costs $5.\n")


@pytest.mark.scenario("S004-16")
def test_ref_is_copied_completely(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "source", "ref-skill")
    write_files(folder, {"scripts/run.sh": "echo\n", "data/deep/a.json": "{}"})
    (folder / "scripts/run.sh").chmod(0o755)
    (folder / "data/deep/a.json").chmod(0o640)
    (folder / "again.json").symlink_to("data/deep/a.json")
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    place = tmp_path / "skills"
    SkillsSection(skill_refs=[SkillRef(linked)]).install_skills(skills_dir=place, params_lookup={})
    installed = place / "ref-skill"
    found = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert found == {"SKILL.md", "scripts/run.sh", "data/deep/a.json", "again.json"}
    assert (installed / "scripts/run.sh").stat().st_mode & 0o777 == 0o755
    assert (installed / "data/deep/a.json").stat().st_mode & 0o777 == 0o640
    assert not (installed / "again.json").is_symlink()
    assert (installed / "again.json").read_text() == "{}"


@pytest.mark.scenario("S004-20")
@pytest.mark.parametrize("source", ["inline", "ref"])
def test_unwritable_skills_folder_is_reported(tmp_path: Path, source: str) -> None:
    blocked = write_files(tmp_path, {"home": "a file"}) / "home" / "skills"
    one = a_skill("one") if source == "inline" else a_ref(tmp_path / "source", "one")
    with pytest.raises(SkillInstallationError) as error:
        SkillsSection(skills=[one]).install_skills(skills_dir=blocked, params_lookup={})
    assert (error.value.skill_name, error.value.skills_dir) == ("one", blocked)
    assert error.value.source == source
    assert isinstance(error.value.cause, OSError)
    assert isinstance(error.value, RuntimeError)


@pytest.mark.scenario("S004-20")
def test_full_disk_leaves_no_partial_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packs.os, "fchmod", full)
    place = tmp_path / "skills"
    section = SkillsSection(skills=[a_skill("one"), a_ref(tmp_path / "source", "two")])
    with pytest.raises(SkillInstallationError, match="No space left") as error:
        section.install_skills(skills_dir=place, params_lookup={})
    assert (error.value.skill_name, error.value.source) == ("two", "ref")
    assert list(place.iterdir()) == []


def test_existing_skill_in_the_home_is_not_overwritten(tmp_path: Path) -> None:
    write_files(tmp_path / "skills/one", {"SKILL.md": "mine"})
    with pytest.raises(SkillInstallationError, match="the name is taken by"):
        SkillsSection(skills=[a_skill("one")]).install_skills(
            skills_dir=tmp_path / "skills", params_lookup={}
        )
    assert (tmp_path / "skills/one/SKILL.md").read_text() == "mine"


# -- in the prompt -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S004-21", "S004-22")
def test_summary_ends_with_the_opening_hint() -> None:
    run = Tool[Paths, None](name="run_tests", description="Runs.", handler=lint)
    section = SkillsSection(skills=[a_skill(tools=[LINT, run])])
    rendered = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section])).render()
    assert rendered.text.endswith(
        "[Skill: code-review] All of code-review.\n\n"
        "---\n"
        '[This skill is summarized. Call `open_sections` with key "skills.code-review"\n'
        "to view full workflow and access tools: lint_code, run_tests.]"
    )
    assert [tool.name for tool in rendered.tools] == ["open_sections"]


def test_ref_text_is_never_a_template(tmp_path: Path) -> None:
    section = SkillsSection(skill_refs=[a_ref(tmp_path, "one")])
    made = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section])).bind(Language())
    opened = made.render(visibility={"skills.one": SectionVisibility.FULL})
    assert opened.text.endswith("### 1.1. one (skills.one)\n\nCosts $5.")


# -- prompt and file have the same content


def both(tmp_path: Path, skill: Skill[Any], **overrides: str) -> tuple[str, str]:
    """Return a skill's text in the prompt and in its file."""
    section = SkillsSection(skills=[skill])
    template = PromptTemplate[None](ns="t", key="t", sections=[section])
    prompt = Prompt(template, overrides=overrides).bind(Language("rust"))
    full = {"skills.code-review": SectionVisibility.FULL}
    (file,) = section.install_skills(
        skills_dir=tmp_path,
        params_lookup=prompt.params_lookup(section),
        overrides=prompt.overrides_below("skills"),
    )
    return prompt.render(visibility=full).text, (file / "SKILL.md").read_text()


@pytest.mark.parametrize("default", [None, Language("python")], ids=["bound", "with a default"])
def test_inner_section_is_filled_equally_in_prompt_and_file(
    tmp_path: Path, default: Language | None
) -> None:
    child = MarkdownSection[Language](
        title="More", key="more", template="In $language.", default_params=default
    )
    for text in both(tmp_path, a_skill(children=[child])):
        assert "In rust." in text


def test_disabled_inner_section_is_omitted_in_prompt_and_file(tmp_path: Path) -> None:
    child = MarkdownSection[Language](
        title="More",
        key="more",
        template="In $language.",
        enabled=lambda params: params.language != "rust",
    )
    for text in both(tmp_path, a_skill(children=[child])):
        assert "In rust." not in text


def test_override_of_an_inner_section_is_in_prompt_and_file(tmp_path: Path) -> None:
    child = MarkdownSection(title="More", key="more", template="first")
    override = {"skills.code-review.more": "second"}
    for text in both(tmp_path, a_skill(children=[child]), **override):
        assert "second" in text
        assert "first" not in text


class Guide(MarkdownSection[Language]):
    """Skill whose params type comes from its base class."""


def test_params_type_is_inherited() -> None:
    guide = Guide(title="Guide", key="guide", template="In $language.")
    template = PromptTemplate[None](ns="t", key="t", sections=[guide])
    assert "In rust." in Prompt(template).bind(Language("rust")).render().text


@pytest.mark.parametrize("title", ["Ops 👩‍💻", "Ops\u00a0Tools", "Ops\tTools\n", "\x1b[2J"])
def test_title_from_a_file_is_reduced_to_one_line(title: str) -> None:
    made = VerbatimSkill(
        name="ops",
        description="PID is $$",
        title=title,
        template="$x",
        key="ops",
        summary="PID is $$",
    )
    assert made.title.split()
    assert "\n" not in made.title
    assert "\x1b" not in made.title
    assert made.render_summary(SkillParams()) == "PID is $$", "a text from a file is no template"
