"""A template with its params: what an adapter evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from butlers.prompt.disclosure import OPENER
from butlers.prompt.params import Params
from butlers.prompt.rendering import RenderedPrompt, Renderer, View
from butlers.prompt.section import SectionVisibility
from butlers.prompt.session import Session
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
