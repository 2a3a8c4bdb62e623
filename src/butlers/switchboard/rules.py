"""The owner's triage rules: their table, how they match a message, and their tools."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import re2
import structlog
from pydantic import Field

from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotFound
from butlers.domain.message import RequestContext, check_storable
from butlers.domain.triage import RuleAction, RuleKind, Suggestion, TriageRule
from butlers.skills.reflexes import CompiledTrigger, compile_trigger
from butlers.switchboard import registry
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

log = structlog.get_logger()

MAX_TEXT = 20_000  # characters of a message that a pattern is searched in
SUGGEST_FROM = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class RuleInput:
    """The parts of a message that rules can match."""

    channel: str
    sender: str
    text: str
    headers: dict[str, str]

    @classmethod
    def of(cls, request: RequestContext, text: str, headers: dict[str, str]) -> RuleInput:
        return cls(request.source_channel, request.source_sender_identity, text, headers)


def first_match(rules: Iterable[TriageRule], message: RuleInput) -> TriageRule | None:
    for rule in rules:
        if rule.channel in (None, message.channel) and _MATCHES[rule.kind](rule, message):
            return rule
    return None


def contains(pattern: str, text: str) -> bool:
    """Return whether a pattern occurs in a text, in linear time. An invalid pattern never does."""
    compiled = _compiled_search(pattern)
    normalized = unicodedata.normalize("NFC", text[:MAX_TEXT])
    return compiled is not None and compiled.search(normalized) is not None


@lru_cache(maxsize=4096)
def _compiled_search(pattern: str) -> Any:
    """Compile a pattern, or log that it is invalid and return None."""
    try:
        return _search_pattern(compile_trigger(pattern))
    except InvalidArguments as error:
        log.warning("pattern ignored", pattern=pattern, error=str(error))
        return None


def check_pattern(pattern: str) -> None:
    compile_trigger(pattern)


def _search_pattern(trigger: CompiledTrigger) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    return re2.compile(unicodedata.normalize("NFC", trigger.pattern), options)


def _sender(rule: TriageRule, message: RuleInput) -> bool:
    return message.sender.casefold() == rule.value.casefold()


def _domain(rule: TriageRule, message: RuleInput) -> bool:
    """Match a domain and its subdomains: example.com matches a@mail.example.com, not a@badexample.com."""
    _, at, domain = message.sender.casefold().rpartition("@")
    wanted = rule.value.casefold().removeprefix("@")
    return bool(at) and (domain == wanted or domain.endswith(f".{wanted}"))


def _header(rule: TriageRule, message: RuleInput) -> bool:
    found = message.headers.get((rule.header or "").lower())
    return found is not None and rule.value.casefold() in found.casefold()


def _pattern(rule: TriageRule, message: RuleInput) -> bool:
    return contains(rule.value, message.text)


_MATCHES = {
    RuleKind.SENDER: _sender,
    RuleKind.DOMAIN: _domain,
    RuleKind.HEADER: _header,
    RuleKind.PATTERN: _pattern,
}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def rules_list(ctx: CallContext) -> dict[str, Any]:
    """The rules in the order in which they are tried, and how many messages each decided."""
    return {"rules": await list_rules(ctx.connection)}


@tool(callers=OWNER_ONLY)
async def rules_add(
    ctx: CallContext,
    kind: RuleKind,
    action: RuleAction,
    value: str = "",
    target: str | None = None,
    header: str | None = None,
    channel: str | None = None,
    position: Annotated[int, Field(ge=0, le=1_000_000)] = 100,
    note: str = "",
) -> dict[str, Any]:
    """Add a rule. Of the rules that match a message, the one with the lowest position decides."""
    rule = TriageRule(uuid7(), kind, value, action, target, header, channel, position, note)
    rule.check()
    check_storable("the rule", [value, target or "", header or "", channel or "", note])
    if kind is RuleKind.PATTERN:
        check_pattern(value)
    if target is not None:
        names = await registry.list_candidates(ctx.connection)
        if target not in names:
            raise NotFound(
                f"there is no butler {target!r} that takes messages",
                hint=f"butlers: {', '.join(names)}",
            )
    await add_rule(ctx.connection, rule)
    return {"id": str(rule.rule_id), "rule": str(rule)}


@tool(callers=OWNER_ONLY)
async def rules_remove(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Remove a rule. Messages that it decided stay as they are."""
    removed = await remove_rule(ctx.connection, id)
    if removed is None:
        raise NotFound(f"there is no rule {id}", hint="`butlers rules list` shows them")
    return {"id": str(id), "rule": str(removed)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def rules_suggest(
    ctx: CallContext, at_least: Annotated[int, Field(ge=2, le=1_000)] = 5
) -> dict[str, Any]:
    """Rules suggested by the decisions of the last month. None is applied by itself."""
    found = await suggest_rules(ctx.connection, ctx.clock.now() - SUGGEST_FROM, at_least)
    return {
        "suggestions": [
            {
                "kind": str(one.rule.kind),
                "value": one.rule.value,
                "channel": one.rule.channel,
                "action": str(one.rule.action),
                "target": one.rule.target,
                "messages": one.messages,
            }
            for one in found
        ]
    }


def _from_row(row: asyncpg.Record) -> TriageRule:
    return TriageRule(
        rule_id=row["id"],
        kind=RuleKind(row["kind"]),
        value=row["value"],
        action=RuleAction(row["action"]),
        target=row["target"],
        header=row["header"],
        channel=row["channel"],
        position=row["position"],
        note=row["note"],
    )


async def read_rules(connection: Connection) -> list[TriageRule]:
    """Return all rules in the order in which they are tried."""
    rows = await connection.fetch("SELECT * FROM triage_rules ORDER BY position, created_at, id")
    return [_from_row(row) for row in rows]


async def list_rules(connection: Connection) -> list[dict[str, Any]]:
    """Return all rules with the number of messages that each decided."""
    rows = await connection.fetch(
        """
        SELECT rule.*, count(message.request_id) AS hits, max(message.received_at) AS last_hit_at
        FROM triage_rules AS rule LEFT JOIN message_inbox AS message ON message.rule_id = rule.id
        GROUP BY rule.id ORDER BY position, created_at, rule.id
        """
    )
    return [dict(row) for row in rows]


async def add_rule(connection: Connection, rule: TriageRule) -> None:
    await connection.execute(
        """
        INSERT INTO triage_rules (id, position, kind, value, header, channel, action, target, note)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        rule.rule_id,
        rule.position,
        rule.kind,
        rule.value,
        rule.header,
        rule.channel,
        rule.action,
        rule.target,
        rule.note,
    )


async def remove_rule(connection: Connection, rule_id: UUID) -> TriageRule | None:
    row = await connection.fetchrow("DELETE FROM triage_rules WHERE id = $1 RETURNING *", rule_id)
    return _from_row(row) if row else None


async def suggest_rules(connection: Connection, since: datetime, at_least: int) -> list[Suggestion]:
    """Suggest a rule for each sender whose messages a model always gave to the same butler."""
    rows = await connection.fetch(
        """
        SELECT channel, sender, min(target) AS target, count(DISTINCT request_id) AS messages
        FROM message_inbox JOIN route_decisions USING (request_id)
        WHERE received_at >= $1 AND rule = 'classified' AND NOT 'owner' = ANY(sender_roles)
          AND NOT EXISTS (SELECT FROM triage_rules AS rule WHERE rule.kind = 'sender'
                          AND lower(rule.value) = lower(sender))
        GROUP BY channel, sender
        HAVING count(DISTINCT target) = 1 AND count(DISTINCT request_id) >= $2
        ORDER BY messages DESC, channel, sender
        """,
        since,
        at_least,
    )
    return [
        Suggestion(
            TriageRule(
                uuid7(),
                RuleKind.SENDER,
                row["sender"],
                RuleAction.ROUTE,
                target=row["target"],
                channel=row["channel"],
                note=f"suggested by {row['messages']} decisions",
            ),
            row["messages"],
        )
        for row in rows
    ]


TOOLS = (rules_list, rules_add, rules_remove, rules_suggest)
