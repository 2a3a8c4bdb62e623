"""How the headings of a prompt look, and which tool opens what is summarised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from butlers.prompt.section import DEEPEST, Section

OPEN_SECTIONS = "open_sections"


@dataclass(frozen=True, slots=True)
class Style:
    """Numbered, with each section's path; or plain, with titles alone and one level higher."""

    numbered: bool = True
    opener: str = OPEN_SECTIONS

    def heading(self, numbers: tuple[int, ...], title: str, path: str) -> str:
        deep = min(len(numbers) + (1 if self.numbered else 0), DEEPEST)
        if not self.numbered:
            return f"{'#' * deep} {title}"
        return f"{'#' * deep} {'.'.join(map(str, numbers))}. {title} ({path})"

    def suffix(self, section: Section[Any], path: str, tools: Sequence[str]) -> str:
        """What stands below a summary: how to see the rest, and what comes with it."""
        access = f" and access tools: {', '.join(tools)}" if tools else ""
        return (
            f"---\n[This {section.noun} is summarized. Call `{self.opener}` with key "
            f'"{path}"\nto view {section.whole}{access}.]'
        )
