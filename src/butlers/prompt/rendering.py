"""Render a prompt to text and tools: enabled sections, and the tools of open ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from butlers.domain.errors import PromptValidationError
from butlers.prompt.params import Params
from butlers.prompt.section import Section, SectionVisibility
from butlers.prompt.template import PromptTemplate, output_instruction
from butlers.prompt.tool import Tool


@dataclass(frozen=True, slots=True)
class RenderedSection:
    path: str
    section: Section[Any]
    visibility: SectionVisibility
    params: Any
    text: str  # heading and body, without its children
    children: tuple[RenderedSection, ...] = ()

    def all(self) -> Iterator[RenderedSection]:
        """Yield this section and all below it, in the order of the text."""
        yield self
        for child in self.children:
            yield from child.all()

    @property
    def whole(self) -> str:
        return "\n\n".join(one.text for one in self.all())

    @property
    def is_summarized(self) -> bool:
        return self.visibility is SectionVisibility.SUMMARY


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    text: str
    sections: tuple[RenderedSection, ...]
    tools: tuple[Tool[Any, Any], ...]  # callable now
    output_type: type | None = None

    def all(self) -> Iterator[RenderedSection]:
        for section in self.sections:
            yield from section.all()

    def find(self, path: str) -> RenderedSection | None:
        return next((one for one in self.all() if one.path == path), None)

    @property
    def summarized(self) -> tuple[RenderedSection, ...]:
        return tuple(one for one in self.all() if one.is_summarized)


@dataclass(frozen=True, slots=True)
class View:
    """Render options. Explicit visibility overrides the session's."""

    params: Params = field(default_factory=Params)
    explicit: Mapping[str, SectionVisibility] = field(default_factory=dict)
    remembered: Mapping[str, SectionVisibility] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    installed: bool = False


class Renderer:
    """Deterministic renderer: equal arguments give equal text."""

    def __init__(self, template: PromptTemplate[Any], view: View) -> None:
        self._template, self._view = template, view
        self._known: set[str] = set()

    def render(self, opener: Tool[Any, Any]) -> RenderedPrompt:
        """Render; offer ``opener`` while a section is summarized."""
        sections = tuple(self._all(self._template.sections, "", ()))
        self._reject_unknown()
        tools = [
            tool
            for top in sections
            for one in top.all()
            if not one.is_summarized
            for tool in one.section.tools
        ]
        if any(one.is_summarized for top in sections for one in top.all()):
            tools.append(opener)
        parts = [one.whole for one in sections]
        wanted = self._template.output_type
        if wanted is not None:
            title = self._template.style.heading(
                (len(sections) + 1,), "Response Format", "response-format"
            )
            parts.append(f"{title}\n\n{output_instruction(wanted)}")
        return RenderedPrompt("\n\n".join(parts), sections, tuple(tools), wanted)

    def _all(
        self, sections: Sequence[Section[Any]], above: str, numbers: tuple[int, ...]
    ) -> Iterator[RenderedSection]:
        number = 1
        for section in sections:
            made = self._one(section, f"{above}{section.key}", (*numbers, number))
            if made is not None:
                yield made
                number += 1

    def _one(
        self, section: Section[Any], path: str, numbers: tuple[int, ...]
    ) -> RenderedSection | None:
        params = self._params(section)
        self._note_known(section, path)
        if not section.is_enabled(params):
            return None
        shown = section.shown_children(params, installed=self._view.installed)
        visibility = self._visibility(section, path, params)
        children: tuple[RenderedSection, ...] = ()
        if visibility is SectionVisibility.SUMMARY:
            body = self._summary(section, path, params, shown)
        else:
            body = self._body(section, path, params)
            children = tuple(self._all(shown, f"{path}.", numbers))
            if section.is_container and not children and not body:
                return None  # skip a heading without content
        heading = self._template.style.heading(numbers, section.title, path)
        text = f"{heading}\n\n{body}" if body else heading
        return RenderedSection(path, section, visibility, params, text, children)

    def _params(self, section: Section[Any]) -> Any:
        return self._view.params.of(section, self._template.claimed_types)

    def _visibility(self, section: Section[Any], path: str, params: Any) -> SectionVisibility:
        for known in (self._view.explicit, self._view.remembered):
            if path in known:
                return known[path]
        return section.chosen_visibility(params)

    def _body(self, section: Section[Any], path: str, params: Any) -> str:
        if path in self._view.texts:
            return section.render_override(self._view.texts[path], params)
        return section.render_body(params)

    def _summary(
        self, section: Section[Any], path: str, params: Any, shown: Sequence[Section[Any]]
    ) -> str:
        tools = [tool.name for tool in (*section.tools, *self._tools_below(shown))]
        suffix = self._template.style.suffix(section, path, tools)
        return f"{section.render_summary(params)}\n\n{suffix}"

    def _tools_below(self, sections: Sequence[Section[Any]]) -> Iterator[Tool[Any, Any]]:
        for section in sections:
            params = self._params(section)
            if section.is_enabled(params):
                yield from section.tools
                yield from self._tools_below(
                    section.shown_children(params, installed=self._view.installed)
                )

    def _note_known(self, section: Section[Any], path: str) -> None:
        """Record the path and those of hidden children, which overrides may name."""
        self._known.add(path)
        for child in section.declared_children():
            self._note_known(child, f"{path}.{child.key}")

    def _reject_unknown(self) -> None:
        unknown = {*self._view.explicit, *self._view.texts} - self._known
        if unknown:
            raise PromptValidationError(
                f"{self._template.name} has no section {', '.join(sorted(unknown))}",
                hint=f"its sections: {', '.join(sorted(self._known))}",
            )
