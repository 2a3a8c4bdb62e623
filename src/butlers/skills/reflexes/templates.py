"""A text with placeholders: ``{name.part}``, and ``{{`` ``}}`` for braces. Nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_PATH = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class TemplateError(ValueError):
    """The template can not be read."""


@dataclass(frozen=True, slots=True)
class Template:
    parts: tuple[str | Path, ...]

    @property
    def placeholders(self) -> tuple[Path, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def whole(self) -> Path | None:
        """The placeholder, when the template is exactly one."""
        return self.placeholders[0] if len(self.parts) == 1 and self.placeholders else None

    def render(self, say: Callable[[Path], str]) -> str:
        text = ""
        for part in self.parts:
            said = part if isinstance(part, str) else say(part)
            # "80 {unit}." without a unit is "80.", not "80 ."
            text = text + said if said else text.removesuffix(" ")
        return text


def parse_template(text: str) -> Template:
    parts: list[str | Path] = []
    for token in _TOKEN.finditer(text):
        part = _part(token)
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    return Template(tuple(parts))


def _part(token: re.Match[str]) -> str | Path:
    inside: str | None = token[1]
    if inside is not None:
        if not _PATH.fullmatch(inside.strip()):
            raise TemplateError(
                f"{token[0]!r} is not a placeholder; write {{name}} or {{name.part}}"
            )
        return tuple(inside.strip().split("."))
    if token[0] in ("{", "}"):
        raise TemplateError(f"a lone {token[0]!r}; write {token[0] * 2!r} for a brace")
    return token[0][0] if token[0] in ("{{", "}}") else token[0]
