"""The owner's rules: what becomes of a message before anybody thinks about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from butlers.domain.errors import InvalidArguments


class RuleKind(StrEnum):
    SENDER = "sender"  # the sender's whole address
    DOMAIN = "domain"  # the end of it, behind the @
    HEADER = "header"  # a mail header: there at all (an empty value), or with this in it
    PATTERN = "pattern"  # RE2, anywhere in the text


class RuleAction(StrEnum):
    ROUTE = "route"  # to the butler that it names
    SKIP = "skip"  # kept, and nothing is done with it
    METADATA_ONLY = "metadata_only"  # that it came is kept, its text is not
    LOW_PRIORITY = "low_priority"  # behind everything else


@dataclass(frozen=True, slots=True)
class TriageRule:
    rule_id: UUID
    kind: RuleKind
    value: str
    action: RuleAction
    target: str | None = None
    header: str | None = None
    channel: str | None = None
    position: int = 100
    note: str = ""

    def check(self) -> None:
        """Refuse a rule that could never act, and say why."""
        if (self.action is RuleAction.ROUTE) != (self.target is not None):
            raise InvalidArguments(
                "a rule has a target when its action is route, and only then",
                hint='for example action "route" with target "health"',
            )
        if (self.kind is RuleKind.HEADER) != (self.header is not None):
            raise InvalidArguments(
                "a rule names a header when its kind is header, and only then",
                hint='for example kind "header" with header "List-Id"',
            )
        if not self.value.strip() and self.kind is not RuleKind.HEADER:
            raise InvalidArguments("the rule's value is empty", hint="it would match everybody")

    def __str__(self) -> str:
        what = f"{self.header}: {self.value}".rstrip(": ") if self.header else self.value
        where = f" on {self.channel}" if self.channel else ""
        does = f"{self.action} {self.target}" if self.target else str(self.action)
        return f"{self.kind} {what}{where} → {does}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that the owner's past decisions amount to. It is never applied unasked."""

    rule: TriageRule
    messages: int  # how many of them there were, all decided alike
