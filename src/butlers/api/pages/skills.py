"""Skills: the registry with versions, differences and drafts, and what the butlers' packs lack."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.domain.errors import NotFound
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill_set import SkillOrigin

router = APIRouter()

MAX_FILE = 60_000  # bytes of a file that are shown or compared
MAX_FILES = 40


@router.get("/skills")
async def skills(request: Request) -> Response:
    site = Site.of(request)
    registry = SkillRegistry(site.fleet.home)
    registered = await asyncio.to_thread(registry.list)
    answers = await site.fleet.ask_all("status")
    used = {
        name: sorted(
            one["name"]
            for one in answers.found.values()
            for state in one["skills"]
            if state["skill"].partition("@")[0] == name
        )
        for name in (skill.id for skill in registered)
    }
    own = await site.fleet.ask_all("skill_list")
    return site.render(
        request,
        "skills.html",
        registered=registered,
        drafts=[
            (skill, release)
            for skill in registered
            for release in skill.releases.values()
            if release.state is SkillState.DRAFT
        ],
        used=used,
        own={
            name: [one for one in answer["skills"] if one["origin"] == SkillOrigin.OWN]
            for name, answer in own.found.items()
        },
        missing=missing_variables(answers.found.values()),
        broken=_broken(answers.found.values()),
        failed={
            **answers.failed,  # a butler without skills has no tool for them
            **{name: e for name, e in own.failed.items() if not isinstance(e, NotFound)},
        },
    )


@router.get("/skills/{name}")
async def skill(request: Request, name: str, version: str = "", against: str = "") -> Response:
    """Show one version of a skill, and what differs from another one."""
    site = Site.of(request)
    registry = SkillRegistry(site.fleet.home)
    found = await asyncio.to_thread(registry.get, name)
    release = found.release(version or None)
    others = [one for one in found.versions if one != release.version]
    other = against if against in others else _next_older(found.versions, release.version)
    files = await asyncio.to_thread(_files, registry, name, release.version)
    before = await asyncio.to_thread(_files, registry, name, other) if other else {}
    return site.render(
        request,
        "skill.html",
        skill=found,
        release=release,
        files=files,
        other=other,
        others=others,
        diff="\n".join(_diff(before, files)) if other else "",
    )


@router.post("/skills/{name}/approve")
async def approve(
    request: Request, name: str, version: Annotated[str, Form(max_length=100)]
) -> Response:
    site = Site.of(request)
    owner = (await asyncio.to_thread(SkillRegistry(site.fleet.home).get, name)).owner
    running = site.fleet.names()
    if not running:
        raise NotFound("no butler runs", hint="start the fleet with `butlers up`")
    butler = owner if owner in running else running[0]
    await site.fleet.call(butler, "skill_approve", skill=f"{name}@{version}")
    return Response(headers={"HX-Refresh": "true"})


def missing_variables(statuses: Iterable[Record]) -> list[Record]:
    """Return the variables without a value, with the butler and the skill that need them."""
    return [
        {"butler": status["name"], "skill": state["skill"], "variable": variable}
        for status in statuses
        for state in status["skills"]
        for variable in state.get("missing", ())
    ]


def _broken(statuses: Iterable[Record]) -> list[Record]:
    return [
        {"butler": status["name"], **state}
        for status in statuses
        for state in status["skills"]
        if state["state"] == "failed"
    ]


def _next_older(versions: tuple[str, ...], version: str) -> str | None:
    older = versions[versions.index(version) + 1 :]
    return older[0] if older else None


def _files(registry: SkillRegistry, name: str, version: str) -> dict[str, str]:
    """Return the text of the files of a version, after its hash was checked."""
    root = registry.path(name, version)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(root).as_posix(): _text(path) for path in files[:MAX_FILES]}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if b"\0" in content:
        return f"(binary, {path.stat().st_size:,} bytes)"
    text = content[:MAX_FILE].decode("utf-8", "replace")
    return text + "\n… (more)" if len(content) > MAX_FILE else text


def _diff(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            yield from difflib.unified_diff(
                old.splitlines(), new.splitlines(), f"old {name}", f"new {name}", lineterm="", n=2
            )
