"""A template with its params: what an adapter evaluates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from butlers.prompt.disclosure import OPENER
from butlers.prompt.params import Params
from butlers.prompt.rendering import RenderedPrompt, Renderer, View
from butlers.prompt.section import Section, SectionVisibility
from butlers.prompt.session import Session
from butlers.prompt.skills_section import SkillsSection
from butlers.prompt.template import PromptTemplate

OutputT = TypeVar("OutputT")


class Prompt(Generic[OutputT]):
    """``overrides``: other texts for sections, by their path."""

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
        """The same prompt with these params too; of a type the last one counts."""
        return Prompt(self.template, overrides=self.overrides, params=self.params.with_more(params))

    def render(
        self,
        *,
        session: Session | None = None,
        visibility: Mapping[str, SectionVisibility] | None = None,
        installed: bool = False,
    ) -> RenderedPrompt:
        """``visibility`` by path beats what the session remembers, and that a section's own choice.

        ``installed``: skills that a session's home can hold are there, and not in the text.
        """
        template = self.template
        remembered = session.visibility(template.ns, template.key) if session else {}
        view = View(self.params, visibility or {}, remembered, self.overrides, installed)
        return Renderer(template, view).render(OPENER)

    def skills_sections(self) -> Iterator[tuple[str, SkillsSection]]:
        """Those that are enabled, with their paths, wherever they stand."""
        yield from self._skills_in(self.template.sections, "")

    def _skills_in(
        self, sections: Sequence[Section[Any]], above: str
    ) -> Iterator[tuple[str, SkillsSection]]:
        for section in sections:
            path = f"{above}{section.key}"
            if not section.is_enabled(self.params.of(section, self.template.claimed)):
                continue
            if isinstance(section, SkillsSection):
                yield path, section
            else:
                yield from self._skills_in(section.children, f"{path}.")

    def params_lookup(self, section: SkillsSection) -> Mapping[type, Any]:
        """What its skills may take: all but what other sections ask for by name."""
        others = self.template.claimed - section.claimed()
        return {kind: one for kind, one in self.params.bound.items() if kind not in others}

    def overrides_below(self, path: str) -> Mapping[str, str]:
        """The texts for sections right below this one, by their keys."""
        start = f"{path}."
        return {
            name.removeprefix(start): text
            for name, text in self.overrides.items()
            if name.startswith(start)
        }
