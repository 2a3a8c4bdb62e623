"""Conventions of tools and reflexes: budgets, and calls and mentions of tools that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from butlers.daemon.roster_check.butler import RosterButler, advice, problem
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.reflexes import Reflex

MAX_TOOLS = 25
MAX_TOKENS = 3_500
BYTES_PER_TOKEN = 4
MIN_REFLEXES, MIN_EXAMPLES, MIN_NEAR_MISSES = 15, 5, 3

_CODE = re.compile(r"`([^`\n]{1,300})`")
_CALL = re.compile(r"([a-z][a-z0-9]*(?:[_.][a-z0-9]+)+|[a-z][a-z0-9]*)\((.*)\)", re.DOTALL)
_ARGUMENT = re.compile(r"(?:^|,)\s*([a-z_]+)\s*=")
_BARE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")


def check_tools(butler: RosterButler) -> Iterator[Diagnostic]:
    file = butler.folder / "tools"
    if len(butler.own_tools) > MAX_TOOLS:
        yield problem("tools", f"{len(butler.own_tools)} tools; the limit is {MAX_TOOLS}", file)
    tokens = sum(tool.size for tool in butler.own_tools.values()) // BYTES_PER_TOKEN
    if tokens > MAX_TOKENS:
        hint = "shorter descriptions, fewer arguments"
        yield problem("tokens", f"the tools take {tokens} tokens of {MAX_TOKENS}", file, hint)


def check_reflexes(butler: RosterButler) -> Iterator[Diagnostic]:
    for reflex in butler.book.reflexes:
        yield from _call(reflex, butler)
        if len(reflex.examples) < MIN_EXAMPLES or len(reflex.not_examples) < MIN_NEAR_MISSES:
            given = f"{len(reflex.examples)} examples and {len(reflex.not_examples)} near misses"
            what = f"{reflex.name} has {given}"
            hint = f"at least {MIN_EXAMPLES} and {MIN_NEAR_MISSES}"
            yield advice("reflex", what, reflex.file, hint)
    if butler.is_domain and len(butler.book.reflexes) < MIN_REFLEXES:
        what = f"{len(butler.book.reflexes)} reflexes; a domain has {MIN_REFLEXES}"
        yield advice("reflexes", what, butler.folder / "skills")


def check_mentions(butler: RosterButler) -> Iterator[Diagnostic]:
    """Check the tools and arguments that AGENTS.md and the skills mention in backticks."""
    if butler.config is None:
        return
    agents = butler.folder / "AGENTS.md"
    files = [agents] if agents.is_file() else []
    for file in (*files, *(folder / "SKILL.md" for folder in butler.skills)):
        text = file.read_text().partition("# Notes to self")[0]
        for span in _CODE.findall(text):
            yield from _mention(span, butler, file)


def _call(reflex: Reflex, butler: RosterButler) -> Iterator[Diagnostic]:
    if reflex.tool is None or butler.config is None:
        return
    tool = butler.tools.get(reflex.tool)
    if tool is None:
        yield problem(
            "reflex-tool", f"{reflex.name} calls the unknown tool {reflex.tool}", reflex.file
        )
        return
    for name in sorted(set(reflex.arguments) - tool.arguments):
        what = f"{reflex.name} gives {reflex.tool} the unknown argument {name!r}"
        yield problem("reflex-tool", what, reflex.file, _known(tool.arguments))


def _mention(span: str, butler: RosterButler, file: Path) -> Iterator[Diagnostic]:
    call = _CALL.fullmatch(span.strip())
    tools = butler.tools
    if call is not None:
        tool = tools.get(call[1])
        if tool is None:
            # A shared skill may name the tools of a module that not every butler has.
            if not file.parent.is_symlink():
                yield problem("mention", f"`{span[:60]}` is no tool of {butler.name}", file)
            return
        for name in _ARGUMENT.findall(_flat(call[2])):
            if name not in tool.arguments:
                hint = _known(tool.arguments)
                yield problem("mention", f"{tool.name} has no argument {name!r}", file, hint)
    elif _BARE.fullmatch(span) and span not in butler.names and not _is_argument(span, tools):
        # Other words with underscores are fields of results; one that resembles a tool is a mistake.
        for near in difflib.get_close_matches(span, butler.names, n=1, cutoff=0.85):
            yield problem("mention", f"`{span}` is no tool of {butler.name}", file, f"{near}?")


def _is_argument(word: str, tools: dict[str, Any]) -> bool:
    return any(word in tool.arguments for tool in tools.values())


def _flat(arguments: str) -> str:
    """Return the arguments without what stands in quotes or brackets."""
    depth, quoted, kept = 0, "", []
    for char in arguments:
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'":
            quoted = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept)


def _known(arguments: frozenset[str]) -> str:
    return f"arguments: {', '.join(sorted(arguments)) or 'none'}"
