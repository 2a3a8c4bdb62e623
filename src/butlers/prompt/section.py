"""Sections: a heading with text, tools and inner sections; and the style of headings."""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from butlers.domain.errors import PromptValidationError
from butlers.prompt.params import fill, generic_arguments, tidy
from butlers.prompt.tool import Tool

ParamsT = TypeVar("ParamsT")
# No dots in keys: a path is keys joined by dots.
KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_HEADING_LEVEL = 6  # of Markdown
_NO_TEXT = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters and line ends


def is_text(sign: str) -> bool:
    return unicodedata.category(sign) not in _NO_TEXT


def require_texts(what: str, /, **values: object) -> None:
    """Raise PromptValidationError for the first value that is not text."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise PromptValidationError(
                f"the {name} of a {what} must be text, not {type(value).__name__}"
            )


class SectionVisibility(StrEnum):
    FULL = "full"
    SUMMARY = "summary"


VisibilitySelector = (
    SectionVisibility | Callable[[], SectionVisibility] | Callable[[Any], SectionVisibility]
)


class Section(Generic[ParamsT]):
    """Base class; subclasses implement ``render_body``."""

    noun: ClassVar[str] = "section"
    whole: ClassVar[str] = "full content"  # shown after opening, in the summary's hint
    is_container: ClassVar[bool] = False  # hidden if it has no content

    def __init__(
        self,
        *,
        title: str,
        key: str,
        default_params: ParamsT | None = None,
        children: Sequence[Section[Any]] | None = None,
        enabled: Callable[[ParamsT], bool] | None = None,
        tools: Sequence[Tool[Any, Any]] | None = None,
        accepts_overrides: bool = True,
        summary: str | None = None,
        visibility: VisibilitySelector = SectionVisibility.FULL,
    ) -> None:
        require_texts(self.noun, title=title, key=key, summary="" if summary is None else summary)
        if not KEY.fullmatch(key):
            raise PromptValidationError(
                f"{key[:80]!r} is not a valid section key",
                hint="use lower-case letters, digits, _ and -",
            )
        if not title.strip() or not all(map(is_text, title)):
            raise PromptValidationError(f"the section {key} needs a one-line title")
        self.title, self.key = title, key
        self.default_params = default_params
        self.children = tuple(children or ())
        self.tools: tuple[Tool[Any, Any], ...] = tuple(tools or ())
        self.accepts_overrides = accepts_overrides
        self.summary = summary
        self.visibility = visibility
        self._enabled = enabled
        if visibility is SectionVisibility.SUMMARY:
            self.require_summary()

    @property
    def params_type(self) -> type | None:
        written = generic_arguments(self)
        if written and isinstance(written[0], type):
            return None if written[0] is type(None) else written[0]
        return None if self.default_params is None else type(self.default_params)

    def require_summary(self) -> str:
        if self.summary is None or not self.summary.strip():
            raise PromptValidationError(
                f"the section {self.key} is summarized but has no summary",
                hint="give it one: summary=…",
            )
        return self.summary

    def is_enabled(self, params: ParamsT) -> bool:
        return True if self._enabled is None else bool(self._ask(self._enabled, params))

    def chosen_visibility(self, params: ParamsT) -> SectionVisibility:
        """Return the visibility that the section's own selector chooses."""
        if isinstance(self.visibility, SectionVisibility):
            return self.visibility
        takes = inspect.signature(self.visibility).parameters
        given = (params,) if takes else ()
        return SectionVisibility(self._ask(self.visibility, *given))

    def _ask(self, selector: Callable[..., Any], *params: Any) -> Any:
        try:
            return selector(*params)
        except Exception as error:
            kind = type(params[0]).__name__ if params else "nothing"
            raise PromptValidationError(
                f"a selector of the section {self.key} failed with params of type {kind}: {error!r}",
                hint="bind the params that the selector needs",
            ) from error

    def render_body(self, params: ParamsT) -> str:
        raise NotImplementedError

    def render_override(self, text: str, params: ParamsT) -> str:
        """Render an override text instead of the body."""
        if not self.accepts_overrides:
            raise PromptValidationError(f"the section {self.key} does not accept overrides")
        return fill(tidy(text), params)

    def render_summary(self, params: ParamsT) -> str:
        return fill(tidy(self.require_summary()), params)

    def declared_children(self) -> Sequence[Section[Any]]:
        """Return all child sections, shown or not."""
        return self.children

    def shown_children(self, params: ParamsT, *, installed: bool) -> Sequence[Section[Any]]:
        """Return the children to render. ``installed``: native skills are in the session's home."""
        return self.children


class MarkdownSection(Section[ParamsT]):
    """Section with a ``string.Template`` text."""

    def __init__(self, *, template: str, **section: Any) -> None:
        self.template = tidy(template)
        super().__init__(**section)

    def render_body(self, params: ParamsT) -> str:
        return fill(self.template, params)


OPEN_SECTIONS = "open_sections"


@dataclass(frozen=True, slots=True)
class Style:
    """Heading style: numbered with paths, or plain titles one level higher."""

    numbered: bool = True
    opener: str = OPEN_SECTIONS

    def heading(self, numbers: tuple[int, ...], title: str, path: str) -> str:
        deep = min(len(numbers) + (1 if self.numbered else 0), MAX_HEADING_LEVEL)
        if not self.numbered:
            return f"{'#' * deep} {title}"
        return f"{'#' * deep} {'.'.join(map(str, numbers))}. {title} ({path})"

    def suffix(self, section: Section[Any], path: str, tools: Sequence[str]) -> str:
        """Return the hint below a summary: how to open the section, and which tools it adds."""
        access = f" and access tools: {', '.join(tools)}" if tools else ""
        return (
            f"---\n[This {section.noun} is summarized. Call `{self.opener}` with key "
            f'"{path}"\nto view {section.whole}{access}.]'
        )
