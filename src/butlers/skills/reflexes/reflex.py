"""One reflex: a pattern, the tool call it stands for, and what is said after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.skills.reflexes.arguments import OMIT, fill
from butlers.skills.reflexes.conversions import convert
from butlers.skills.reflexes.converted import Converted, GroupRule, Moment
from butlers.skills.reflexes.patterns import CompiledTrigger
from butlers.skills.reflexes.results import is_empty, result_at
from butlers.skills.reflexes.speech import UNKNOWN, say
from butlers.skills.reflexes.templates import Path as Placeholder
from butlers.skills.reflexes.templates import Template


@dataclass(frozen=True, slots=True)
class Reflex:
    skill: str
    name: str
    file: Path
    trigger: CompiledTrigger
    groups: Mapping[str, GroupRule]
    arguments: Mapping[str, Any]
    tool: str | None
    reply: Template
    reply_empty: Template | None = None
    examples: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        return self.trigger.pattern

    def match(self, text: str, moment: Moment) -> ReflexMatch | None:
        captured = self.trigger.match(text)
        groups = None if captured is None else self._converted(captured, moment)
        if groups is None:
            return None
        arguments = fill(dict(self.arguments), groups)
        return ReflexMatch(self, groups, {} if arguments is OMIT else arguments)

    def _converted(
        self, captured: Mapping[str, str | None], moment: Moment
    ) -> dict[str, Converted] | None:
        groups: dict[str, Converted] = {}
        for name, rule in self.groups.items():
            written = captured.get(name)
            # A group that matched nothing, as in (?P<unit>kg|), took no part either.
            written = written if written and written.strip() else rule.default
            if written is None:
                if rule.required:
                    return None
                continue
            converted = convert(written, rule, moment)
            if converted is None:
                return None
            groups[name] = converted
        return groups


@dataclass(frozen=True, slots=True)
class ReflexMatch:
    reflex: Reflex
    groups: Mapping[str, Converted]
    arguments: dict[str, Any]

    @property
    def skill(self) -> str:
        return self.reflex.skill

    @property
    def name(self) -> str:
        return self.reflex.name

    @property
    def tool(self) -> str | None:
        return self.reflex.tool

    def reply(self, result: Any = None) -> str:
        """What to say once the tool has answered."""
        empty = self.reflex.reply_empty
        template = empty if empty is not None and is_empty(result) else self.reflex.reply
        return template.render(lambda path: self._say(path, result))

    def _say(self, path: Placeholder, result: Any) -> str:
        if path[0] in self.groups:
            group = self.groups[path[0]]
            return say(group.parts.get(path[1], UNKNOWN)) if len(path) > 1 else group.said
        if path[0] == "result":
            return say(result_at(result, path[1:]))
        if path[0] in self.arguments:
            return say(result_at(self.arguments, path))
        return ""
