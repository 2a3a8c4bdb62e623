"""``butlers approvals``: actions that wait for the owner, in all butlers, and standing rules."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.fleet import (
    LONGEST_LIST,
    Answers,
    Record,
    ask_all,
    call,
    call_tool,
    find_by_prefix,
    known_butlers,
    newest_first,
)
from butlers.cli.output import AsJson, confirm, print_json, print_line, print_result, print_rows
from butlers.config.settings import Settings
from butlers.domain.errors import NotFound

app = typer.Typer(help="Approve or reject what waits for your decision.", no_args_is_help=True)

ActionId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id or code from `approvals list`, or the start of the id."),
]
STATUSES = ("pending", "approved", "rejected", "expired", "executed")
_COLUMNS = ("code", "butler", "status", "risk_tier", "expires_at", "agent_summary", "why", "id")


@app.command(name="list")
def list_approvals(
    every: Annotated[
        bool, typer.Option("--all", help="Include decided and expired actions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for your decision, newest first."""
    found = _actions(STATUSES if every else ("pending",))
    print_rows(newest_first(found, "requested_at"), _COLUMNS, as_json)
    found.exit_on_failures()


@app.command()
def show(action: ActionId) -> None:
    """Show one action in full: arguments, reason, result and log, as JSON."""
    butler, chosen = _find(action)
    print_json({"butler": butler, **call_tool(butler, "show_pending_action", action_id=chosen)})


@app.command()
def approve(
    action: ActionId,
    always: Annotated[
        bool, typer.Option("--always", help="Also allow equal calls from now on.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask about the rule.")] = False,
    as_json: AsJson = False,
) -> None:
    """Approve an action. It is done, once, when this returns."""
    butler, chosen = _find(action)
    if always and not yes:
        _confirm_rule(butler, chosen)
    done = call_tool(butler, "approve_action", action_id=chosen, create_rule=always)
    result = done.get("execution_result") or {}
    failed = result and not result.get("success")
    also = f", and {len(done['also_decided'])} more" if done["also_decided"] else ""
    text = f"{done['status']} {done['id']}{also}: {done['agent_summary']}"
    print_result(done, f"{text}\nfailed: {result['error']}" if failed else text, as_json)
    if failed:
        raise typer.Exit(1)


@app.command()
def reject(
    action: ActionId,
    reason: Annotated[str | None, typer.Option(help="Reason, for the log.")] = None,
    as_json: AsJson = False,
) -> None:
    """Reject an action. It is never done."""
    butler, chosen = _find(action)
    done = call_tool(butler, "reject_action", action_id=chosen, reason=reason)
    print_result(done, f"rejected {done['id']}: {done['agent_summary']}", as_json)


@app.command()
def undo(action: ActionId, as_json: AsJson = False) -> None:
    """Undo an approved action within ten minutes, if it can be undone."""
    butler, chosen = _find(action)
    done = call_tool(butler, "undo_action", action_id=chosen)
    print_result(done, f"undone {done['id']}: {done['agent_summary']}", as_json)


@app.command()
def rules(
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Suggest rules for what you approved repeatedly.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="ID", help="End the rule with this id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the standing rules, suggest new ones, or revoke one."""
    if suggest:
        _print_suggestions(as_json)
        return
    found = _ask_every("list_approval_rules", {}, "rules")
    if revoke is not None:
        listed = newest_first(found, "created_at")
        chosen = find_by_prefix(
            revoke, [rule["id"] for rule in listed], "rules", "butlers approvals rules"
        )
        (butler,) = [rule["butler"] for rule in listed if rule["id"] == chosen] or [None]
        if butler is None:
            raise NotFound(
                f"there is no rule {revoke}", hint="`butlers approvals rules` lists them"
            )
        done = call_tool(butler, "revoke_approval_rule", rule_id=chosen)
        print_result(done, f"revoked {chosen}", as_json)
        return
    columns = ("id", "butler", "tool_name", "use_count", "max_uses", "expires_at", "description")
    print_rows(newest_first(found, "created_at"), columns, as_json)
    found.exit_on_failures()


def _confirm_rule(butler: str, action_id: str) -> None:
    """Show the rule and what else it would have let through, and ask."""
    answer = call_tool(butler, "suggest_rule_constraints", action_id=action_id)
    (proposed,) = answer["suggestions"]
    print_line(f"This rule for {proposed['tool_name']} would be made:")
    for name, constraint in proposed["arg_constraints"].items():
        value = "anything" if constraint["type"] == "any" else repr(constraint["value"])
        print_line(f"  {name}: {value}")
    admitted = proposed["would_have_admitted"]
    print_line(
        f"In the last {proposed['days']} days it would have let through {len(admitted)} more:"
        if admitted
        else f"In the last {proposed['days']} days it would have let through nothing else."
    )
    for one in admitted[:10]:
        print_line(f"  {one['status']}: {one['summary']}")
    if not confirm("Approve, and make this rule?"):
        raise typer.Abort


def _print_suggestions(as_json: bool) -> None:
    found = _ask_every("suggest_rule_constraints", {}, "suggestions")
    rows = [one for records in found.found.values() for one in records]
    if as_json:
        print_json(rows)
    for one in () if as_json else rows:
        print_line(f"{one['butler']}: {one['tool_name']} {one['arg_constraints']}")
        print_line(f"  `butlers approvals approve --always` on a question like {one['action_id']}")
    found.exit_on_failures()


def _actions(statuses: tuple[str, ...]) -> Answers[list[Record]]:
    return asyncio.run(_every_action(statuses))


async def _every_action(statuses: tuple[str, ...]) -> Answers[list[Record]]:
    names = await known_butlers(Settings.from_environ())

    async def ask(name: str) -> list[Record]:
        records: list[Record] = []
        for status in statuses:
            arguments = {"status": status, "limit": LONGEST_LIST}
            records += await _ask_one(name, "list_pending_actions", arguments, "actions")
        return records

    return await ask_all(names, ask)


def _ask_every(tool: str, arguments: dict[str, Any], key: str) -> Answers[list[Record]]:
    async def ask_names() -> Answers[list[Record]]:
        names = await known_butlers(Settings.from_environ())
        return await ask_all(names, lambda name: _ask_one(name, tool, arguments, key))

    return asyncio.run(ask_names())


async def _ask_one(name: str, tool: str, arguments: dict[str, Any], key: str) -> list[Record]:
    """Ask one butler. One without the approvals module has nothing that waits."""
    try:
        answer = await call(name, tool, arguments)
    except NotFound:
        return []
    return [{"butler": name, **record} for record in answer[key]]


def _find(given: str) -> tuple[str, str]:
    """Return the butler and the id of an action, by its id, the start of it, or its code."""
    found = _actions(STATUSES)
    records = newest_first(found, "requested_at")
    wanted = given.lower()
    coded = [one for one in records if one["code"] == wanted]
    waiting = [one for one in coded if one["status"] == "pending"]
    for matches in (waiting, coded):
        if len(matches) == 1:
            return matches[0]["butler"], matches[0]["id"]
    ids = [one["id"] for one in records]
    chosen = find_by_prefix(wanted, ids, "actions", "butlers approvals list")
    for one in records:
        if one["id"] == chosen:
            return one["butler"], chosen
    found.exit_on_failures()
    raise NotFound(f"there is no action {given}", hint="`butlers approvals list` shows them")
