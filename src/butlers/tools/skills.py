"""Tools for skills (list, open, run, create, approve, assign) and for the soul."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import mcp_types as mt
from fastmcp.tools.base import ToolResult
from pydantic import Field, TypeAdapter

from butlers.domain.caller import OWNER_ONLY, SESSIONS
from butlers.sessions.pack_servers import PackServer, PackTool
from butlers.sessions.skills import ButlerSkills, ScriptRequest
from butlers.sessions.soul import MAX_SOUL, Soul
from butlers.skills.install.draft import SkillDraft
from butlers.skills.instructions import (
    describe_scripts,
    list_files,
    read_instructions,
    read_text,
)
from butlers.skills.registry.built_in import reads_only_butler
from butlers.skills.registry.butler_packs import assign
from butlers.skills.skill_set import ButlerSkill
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.declaration import Effect, ToolSpec, spec_of, tool

MAX_CATALOGUE = 1_600  # characters of the catalogue in a tool's description; skill_list has all
MAX_DESCRIPTION = 160  # of one skill in the catalogue
MAX_TOOL_NAME = 64  # models accept no longer ones

_blocks: TypeAdapter[list[mt.ContentBlock]] = TypeAdapter(list[mt.ContentBlock])

SkillName = Annotated[str, Field(min_length=1, max_length=200)]


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def skill_list(ctx: CallContext) -> dict[str, Any]:
    """All skills with their purpose and scripts, and those that failed or are invalid."""
    found = await asyncio.to_thread(ctx.skills.skill_set.skills_and_drafts)
    return {
        "skills": [await asyncio.to_thread(_shown, entry) for entry in found],
        "failed": [
            {"skill": failed.wanted, "error": failed.error.message}
            for failed in await asyncio.to_thread(ctx.skills.skill_set.failed)
        ],
        "invalid": [
            {"folder": folder, "errors": errors.splitlines()}
            for folder, errors in sorted(ctx.skills.maker.invalid.items())
        ],
    }


@tool(callers=SESSIONS, effect=Effect.LOOK)
async def skill_open(
    ctx: CallContext, skill: SkillName, file: Annotated[str, Field(max_length=512)] | None = None
) -> dict[str, Any]:
    """Read a skill's instructions before you use it; with file, one of the files they name."""
    entry = await asyncio.to_thread(ctx.skills.skill_set.find, skill)
    await asyncio.to_thread(entry.verify)
    if file is not None:
        return {
            "file": file,
            "text": await asyncio.to_thread(read_text, entry.pack, file),
        }
    return {
        **await asyncio.to_thread(_shown, entry),
        "instructions": await asyncio.to_thread(read_instructions, entry.pack),
        "files": await asyncio.to_thread(list_files, entry.pack),
    }


@tool(callers=SESSIONS, effect=Effect.LONG)
async def skill_run(
    ctx: CallContext,
    skill: SkillName,
    script: Annotated[str, Field(min_length=1, max_length=512)],
    arguments: dict[str, Any] | list[str] | None = None,
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 60,
) -> dict[str, Any]:
    """Run a script of a skill with an object, or with a list of words, as its arguments."""
    wish = ScriptRequest(
        skill,
        script,
        {} if arguments is None else arguments,
        ctx.caller,
        ctx.request,
        min(timeout_s, ctx.services.config.runtime.timeout_s),
    )
    found = await asyncio.to_thread(ctx.skills.skill_set.find, skill)
    if not reads_only_butler(found.skill):
        ctx.outside.add("skill_run")  # before it runs: the script may call tools with what it reads
    answer = await ctx.skills.run(wish)
    return answer.as_dict()


@tool(callers=SESSIONS, effect=Effect.LONG)
async def skill_create(
    ctx: CallContext,
    id: SkillName,  # noqa: A002  (what a manifest calls it)
    description: Annotated[str, Field(min_length=1, max_length=1024)],
    instructions: str,
    version: str = "1.0.0",
    scripts: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    env_vars: list[str] | None = None,
) -> dict[str, Any]:
    """Make a skill of something you learned, or a new version of one of yours: instructions, and scripts
    and files by path with their text. It stays a draft until the owner approves it.
    """
    require_trusted_input(ctx, "make a skill")
    draft = SkillDraft(
        id,
        description,
        instructions,
        version,
        scripts=scripts or {},
        files=files or {},
        env_vars=tuple(env_vars or ()),
    )
    made = await ctx.skills.maker.create(draft)
    return {"skill": f"{made.id}@{version}", "state": str(made.release(version).state)}


@tool(callers=OWNER_ONLY)
async def skill_approve(ctx: CallContext, skill: SkillName) -> dict[str, Any]:
    """Approve this version of a skill that a butler made: every butler may use it and run its scripts."""
    name, _at, version = skill.partition("@")
    registry = ctx.skills.skill_set.registry
    release = registry.get(name).release(version or None)
    approved = await asyncio.to_thread(registry.approve, name, release.version)
    state = approved.release(release.version).state
    return {"skill": f"{name}@{release.version}", "state": str(state)}


@tool(callers=OWNER_ONLY)
async def skill_assign(ctx: CallContext, skill: SkillName) -> dict[str, Any]:
    """Add a registered skill to this butler's packs. It takes effect at the next start."""
    config, registry = ctx.services.config, ctx.skills.skill_set.registry
    return await asyncio.to_thread(assign, registry, config, skill)


def _shown(entry: ButlerSkill) -> dict[str, Any]:
    skill = entry.skill
    return {
        "name": skill.name,
        "version": skill.version,
        "description": skill.description,
        "origin": str(entry.origin),
        **({"state": "draft"} if entry.draft else {}),
        "scripts": describe_scripts(entry.pack),
    }


def skill_specs(skills: ButlerSkills) -> Iterator[ToolSpec]:
    """Return the tools for skills. Without skills, sessions get none, because each tool costs tokens."""
    yield from map(spec_of, OWNERS)
    if not skills.skill_set.needs_tools:
        return
    catalogue = _catalogue([entry for entry in skills.skill_set.provided() if not entry.draft])
    for function in TOOLS:
        spec = spec_of(function)
        about = (
            f"{spec.description}\n\n{catalogue}" if function is skill_open and catalogue else None
        )
        yield replace(spec, about=about)


def _catalogue(skills: Sequence[ButlerSkill]) -> str:
    """Return names and descriptions up to the limit."""
    lines: list[str] = []
    left = MAX_CATALOGUE
    for entry in skills:
        described = " ".join(entry.skill.description.split())[:MAX_DESCRIPTION]
        line = f"- {entry.name}: {described}"
        left -= len(line) + 1
        if left < 0:
            lines.append("- … skill_list has the rest")
            break
        lines.append(line)
    return "\n".join(lines)


def pack_tools(skills: ButlerSkills, taken: frozenset[str]) -> Iterator[ToolSpec]:
    """Return the tools of the packs' own servers, prefixed with the pack's name."""
    names = set(taken)
    for server in skills.servers:
        for offered in server.tools:
            if offered.name in names or len(offered.name) > MAX_TOOL_NAME:
                why = "exists already" if offered.name in names else "has too long a name"
                server.error = f"the tool {offered.name[:MAX_TOOL_NAME]} {why}"
                continue
            names.add(offered.name)
            yield _forwarding(server, offered)


def _forwarding(server: PackServer, offered: PackTool) -> ToolSpec:
    async def forward(_ctx: CallContext, arguments: dict[str, Any]) -> ToolResult:
        answered = await server.call(offered.inner, arguments)
        return ToolResult(_blocks.validate_python(answered.content), answered.structured)

    return ToolSpec(
        offered.name,
        forward,
        SESSIONS,
        Effect.LONG,
        about=offered.description or offered.inner,
        parameters=offered.parameters,
        outside=True,
    )


async def _undo_edit(ctx: CallContext, _result: dict[str, Any]) -> None:
    await asyncio.to_thread(_soul(ctx).undo)


@tool(callers=SESSIONS, reverse=_undo_edit)
async def soul_edit(
    ctx: CallContext,
    text: Annotated[str, Field(min_length=1, max_length=MAX_SOUL)],
    replaces: Annotated[str, Field(min_length=1, max_length=MAX_SOUL)] | None = None,
) -> dict[str, Any]:
    """Change your soul from the next session on: all of it, or the passage that the text replaces."""
    require_trusted_input(ctx, "edit the soul")
    by = f"{ctx.caller.kind}:{ctx.caller.session_id or ctx.caller.name}"
    number = await asyncio.to_thread(_soul(ctx).edit, text, by, ctx.clock.now(), replaces)
    return {"edit": number}


@tool(callers=SESSIONS)
async def soul_undo(ctx: CallContext) -> dict[str, Any]:
    """Undo the last edit of the soul."""
    require_trusted_input(ctx, "edit the soul")
    return {"undone": await asyncio.to_thread(_soul(ctx).undo)}


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def soul_show(
    ctx: CallContext, edits: Annotated[int, Field(ge=0, le=50)] = 10
) -> dict[str, Any]:
    """Return the soul in force and its newest edits, each with its difference."""
    soul = _soul(ctx)
    changes = await asyncio.to_thread(soul.history, edits)
    return {
        "text": await asyncio.to_thread(soul.read),
        "edits": [asdict(change) for change in changes],
        "sessions_may_edit": ctx.services.config.skills.allow_soul_edit,
    }


def soul_specs(*, by_sessions: bool) -> Iterator[ToolSpec]:
    yield spec_of(soul_show)
    callers = SESSIONS if by_sessions else OWNER_ONLY
    yield from (replace(spec_of(function), callers=callers) for function in SOUL)


def _soul(ctx: CallContext) -> Soul:
    config = ctx.services.config
    return Soul(config.directory, ctx.skills.skill_set.registry.home, config.name)


TOOLS = (skill_list, skill_open, skill_run, skill_create)
OWNERS = (skill_approve, skill_assign)
SOUL = (soul_edit, soul_undo)
