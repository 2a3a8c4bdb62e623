"""Holding the owner's rules against a message: the first that matches decides."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2
import structlog

from butlers.domain.errors import InvalidArguments
from butlers.domain.rule import RuleKind, TriageRule
from butlers.skills.reflexes import CompiledTrigger, compile_trigger

log = structlog.get_logger()

LONGEST_TEXT = 20_000  # characters that a pattern looks at


@dataclass(frozen=True, slots=True)
class Letter:
    """What rules see of a message."""

    channel: str
    sender: str
    text: str
    headers: dict[str, str]


def first_match(rules: Iterable[TriageRule], letter: Letter) -> TriageRule | None:
    for rule in rules:
        if rule.channel in (None, letter.channel) and _MATCHES[rule.kind](rule, letter):
            return rule
    return None


def contains(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text, in linear time; a bad pattern occurs nowhere."""
    found = searcher(pattern)
    seen = unicodedata.normalize("NFC", text[:LONGEST_TEXT])
    return found is not None and found.search(seen) is not None


@lru_cache(maxsize=4096)
def searcher(pattern: str) -> Any:
    """A pattern that came over the wire and does not compile is left out, loudly, once."""
    try:
        return _searching(compile_trigger(pattern))
    except InvalidArguments as error:
        log.warning("pattern ignored", pattern=pattern, error=str(error))
        return None


def check_pattern(pattern: str) -> None:
    compile_trigger(pattern)


def _searching(trigger: CompiledTrigger) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    return re2.compile(unicodedata.normalize("NFC", trigger.pattern), options)


def _sender(rule: TriageRule, letter: Letter) -> bool:
    return letter.sender.casefold() == rule.value.casefold()


def _domain(rule: TriageRule, letter: Letter) -> bool:
    """example.com is the domain of a@example.com and a@mail.example.com, not of a@badexample.com."""
    _, at, domain = letter.sender.casefold().rpartition("@")
    wanted = rule.value.casefold().removeprefix("@")
    return bool(at) and (domain == wanted or domain.endswith(f".{wanted}"))


def _header(rule: TriageRule, letter: Letter) -> bool:
    found = letter.headers.get((rule.header or "").lower())
    return found is not None and rule.value.casefold() in found.casefold()


def _pattern(rule: TriageRule, letter: Letter) -> bool:
    return contains(rule.value, letter.text)


_MATCHES = {
    RuleKind.SENDER: _sender,
    RuleKind.DOMAIN: _domain,
    RuleKind.HEADER: _header,
    RuleKind.PATTERN: _pattern,
}
