"""Known senders and the owner's triage rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from butlers.domain.errors import InvalidArguments


@dataclass(frozen=True, slots=True)
class Contact:
    contact_id: UUID
    name: str
    roles: tuple[str, ...] = ()


class RuleKind(StrEnum):
    SENDER = "sender"  # the sender's whole address
    DOMAIN = "domain"  # the part of the address after the @
    HEADER = "header"  # an email header: present (empty value), or containing the value
    PATTERN = "pattern"  # RE2, anywhere in the text


class RuleAction(StrEnum):
    ROUTE = "route"  # send it to the named butler
    SKIP = "skip"  # store it and do nothing
    METADATA_ONLY = "metadata_only"  # record it without its text
    LOW_PRIORITY = "low_priority"  # handle it after everything else


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
        """Raise InvalidArguments for a rule that could never match or act."""
        if (self.action is RuleAction.ROUTE) != (self.target is not None):
            raise InvalidArguments(
                "a rule needs a target if its action is route, and must not have one otherwise",
                hint='for example action "route" with target "health"',
            )
        if (self.kind is RuleKind.HEADER) != (self.header is not None):
            raise InvalidArguments(
                "a rule needs a header if its kind is header, and must not have one otherwise",
                hint='for example kind "header" with header "List-Id"',
            )
        if not self.value.strip() and self.kind is not RuleKind.HEADER:
            raise InvalidArguments(
                "the rule's value is empty", hint="an empty value would match every message"
            )

    def __str__(self) -> str:
        what = f"{self.header}: {self.value}".rstrip(": ") if self.header else self.value
        where = f" on {self.channel}" if self.channel else ""
        does = f"{self.action} {self.target}" if self.target else str(self.action)
        return f"{self.kind} {what}{where} → {does}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that the owner's past decisions suggest. The owner decides whether to add it."""

    rule: TriageRule
    messages: int  # number of past decisions, all alike
