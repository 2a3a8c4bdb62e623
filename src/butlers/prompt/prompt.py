"""A template with its params, and the tool that opens summarized sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from butlers.domain.errors import InvalidArguments, VisibilityExpansionRequired
from butlers.prompt.params import Params
from butlers.prompt.rendering import RenderedPrompt, Renderer, View
from butlers.prompt.section import OPEN_SECTIONS, Section, SectionVisibility
from butlers.prompt.session import Session, SkillExpanded
from butlers.prompt.skills_section import SkillsSection
from butlers.prompt.template import PromptTemplate
from butlers.prompt.tool import Tool, ToolContext

if TYPE_CHECKING:
    from butlers.prompt.session import Session


@dataclass(frozen=True, slots=True)
class OpenSections:
    section_keys: tuple[str, ...]
    reason: str = ""


def open_sections(params: OpenSections, *, context: ToolContext) -> NoReturn:
    """Request expansion of the closed sections among the keys.

    Raises InvalidArguments for unknown keys and if all sections are already open.
    """
    closed = {one.path for one in context.rendered_prompt.summarized}
    known = {one.path for one in context.rendered_prompt.all()}
    unknown = [key for key in params.section_keys if key not in known]
    hint = f"closed sections: {', '.join(sorted(closed)) or 'none'}"
    if unknown or not params.section_keys:
        named = ", ".join(unknown) or "no key given"
        raise InvalidArguments(f"unknown section: {named}", hint=hint)
    wanted = tuple(dict.fromkeys(key for key in params.section_keys if key in closed))
    if not wanted:
        raise InvalidArguments("these sections are already open", hint=hint)
    overrides = dict.fromkeys(wanted, SectionVisibility.FULL)
    raise VisibilityExpansionRequired(overrides, params.reason, wanted)


OPEN_SECTIONS_TOOL: Tool[Any, Any] = Tool[OpenSections, None](
    name=OPEN_SECTIONS,
    description="Show summarized sections in full and get their tools. "
    "section_keys: the keys as the summaries name them. reason: why.",
    handler=open_sections,
)


def expand(
    prompt: Prompt[Any],
    session: Session,
    before: RenderedPrompt,
    asked: VisibilityExpansionRequired,
) -> None:
    """Store the opened sections in the session and publish SkillExpanded for each skill."""
    template = prompt.template
    session.set_visibility(template.ns, template.key, asked.requested_overrides)
    for path in asked.section_keys:
        found = before.find(path)
        if found is None or not found.is_summarized:
            continue
        name = getattr(found.section, "name", None)
        if name is not None:
            session.publish(SkillExpanded, template, skill_name=name, skill_key=path)


OutputT = TypeVar("OutputT")


class Prompt(Generic[OutputT]):
    """A bound prompt. ``overrides`` replaces texts of sections, by path."""

    def __init__(
        self,
        template: PromptTemplate[OutputT],
        *,
        overrides: Mapping[str, str] | None = None,
        params: Params | None = None,
    ) -> None:
        self.template = template
        self.overrides = dict(overrides or {})
        self.params = params or Params()

    def bind(self, *params: Any) -> Prompt[OutputT]:
        """Return a copy with more params; of each type the last one counts."""
        return Prompt(self.template, overrides=self.overrides, params=self.params.with_more(params))

    def render(
        self,
        *,
        session: Session | None = None,
        visibility: Mapping[str, SectionVisibility] | None = None,
        installed: bool = False,
    ) -> RenderedPrompt:
        """Render text and tools.

        ``visibility`` (by path) overrides the session's, which overrides a section's own choice.
        ``installed``: native skills are installed in the session's home and left out of the text.
        """
        template = self.template
        remembered = session.visibility(template.ns, template.key) if session else {}
        view = View(self.params, visibility or {}, remembered, self.overrides, installed)
        return Renderer(template, view).render(OPEN_SECTIONS_TOOL)

    def skills_sections(self) -> Iterator[tuple[str, SkillsSection]]:
        """Yield the enabled skills sections at any depth, with their paths."""
        yield from self._skills_in(self.template.sections, "")

    def _skills_in(
        self, sections: Sequence[Section[Any]], above: str
    ) -> Iterator[tuple[str, SkillsSection]]:
        for section in sections:
            path = f"{above}{section.key}"
            if not section.is_enabled(self.params.of(section, self.template.claimed_types)):
                continue
            if isinstance(section, SkillsSection):
                yield path, section
            else:
                yield from self._skills_in(section.children, f"{path}.")

    def params_lookup(self, section: SkillsSection) -> Mapping[type, Any]:
        """Return the params for the section's skills: all except those that other sections claim."""
        others = self.template.claimed_types - section.claimed_types()
        return {kind: one for kind, one in self.params.bound.items() if kind not in others}

    def overrides_below(self, path: str) -> Mapping[str, str]:
        """Return the override texts for sections below this path, by relative path."""
        start = f"{path}."
        return {
            name.removeprefix(start): text
            for name, text in self.overrides.items()
            if name.startswith(start)
        }
