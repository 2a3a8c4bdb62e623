"""Serves a butler's skills to its owner's MCP clients (SEP-2640). Sessions and peers see none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as mt
import structlog
from fastmcp import FastMCP
from fastmcp.resources import BinaryResource, Resource, TextResource
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.providers import Provider
from fastmcp.skills.models import (
    GetSkillParams,
    GetSkillResult,
    ListSkillsParams,
    ListSkillsResult,
    Skill,
    SkillFrontmatter,
    SkillResource,
)
from fastmcp.utilities.versions import VersionSpec
from mcp import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from butlers.domain.caller import CallerKind
from butlers.domain.errors import NotAuthenticated, SkillError
from butlers.skills.offered import MAIN_FILE, OfferedSkill, SkillOffers
from butlers.skills.skill_set import ButlerSkillSet
from butlers.tools.callers import ButlerTokens, InFlight

log = structlog.get_logger()

SCHEME = "skill://"
MAX_URI = 2_048

IsOwner = Callable[[], bool]


def serve_skills(
    mcp: FastMCP, skill_set: ButlerSkillSet, tokens: ButlerTokens, in_flight: InFlight
) -> None:
    """Add the skills to the server, for requests with the owner's token."""

    def is_owner() -> bool:
        try:
            caller, session = tokens.current()
        except NotAuthenticated:
            return False
        in_flight.admit(caller)
        # A token that a session lent to a script of the owner is not the owner's.
        return session is None and caller.kind is CallerKind.OWNER

    offers = SkillOffers(skill_set)
    mcp.add_provider(SkillFiles(offers, is_owner))
    mcp.add_extension(SkillMethods(offers, is_owner))


class SkillFiles(Provider):
    """The files of the offered skills, as resources. A list of resources names the SKILL.md files."""

    def __init__(self, offers: SkillOffers, is_owner: IsOwner) -> None:
        super().__init__()
        self._offers = offers
        self._is_owner = is_owner

    async def _list_resources(self) -> Sequence[Resource]:
        if not self._is_owner():
            return []
        found = await asyncio.to_thread(_entries, self._offers)
        listed = [await self._get_resource(skill.uri) for skill in found]
        return [resource for resource in listed if resource is not None]

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        named = _named(uri)
        if named is None or not self._is_owner():
            return None
        try:
            content = await asyncio.to_thread(self._offers.content, *named)
        except SkillError as error:
            log.info("skill file not served", uri=uri, error=error.message)
            return None
        return _resource(uri, "/".join(named), content)


class SkillMethods(ServerExtension):
    """The methods of the skills extension: the list of skills, and one of them."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, offers: SkillOffers, is_owner: IsOwner) -> None:
        self._offers = offers
        self._is_owner = is_owner

    def methods(self) -> Sequence[MethodBinding]:
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("skills/list", ListSkillsParams, self._list, versions),
            MethodBinding("skills/get", GetSkillParams, self._get, versions),
        )

    async def _list(self, _context: Any, _params: ListSkillsParams) -> ListSkillsResult:
        if not self._is_owner():
            return ListSkillsResult(skills=[])
        return ListSkillsResult(skills=await asyncio.to_thread(_entries, self._offers))

    async def _get(self, _context: Any, params: GetSkillParams) -> GetSkillResult:
        named = _named(params.uri)
        if named is not None and named[1] == MAIN_FILE and self._is_owner():
            try:
                offered = await asyncio.to_thread(self._offers.skill, named[0])
                return GetSkillResult(skill=_entry(offered))
            except (SkillError, ValidationError) as error:
                log.info("skill not served", uri=params.uri, error=str(error))
        raise MCPError(mt.INVALID_PARAMS, f"Unknown skill URI: {params.uri[:MAX_URI]}")


def _entries(offers: SkillOffers) -> list[Skill]:
    """Return the entries of the index. A skill that breaks the standard's rules is logged."""
    found = []
    for offered in offers.skills():
        try:
            found.append(_entry(offered))
        except ValidationError as error:
            log.warning("skill not offered", skill=offered.name, error=error.errors()[0]["msg"])
    return sorted(found, key=lambda skill: skill.uri)


def _entry(offered: OfferedSkill) -> Skill:
    return Skill(
        uri=_uri(offered.name, MAIN_FILE),
        frontmatter=SkillFrontmatter(dict(offered.fields)),
        resources=[
            SkillResource(uri=_uri(offered.name, file.path), digest=file.digest, size=file.size)
            for file in offered.files
        ],
    )


def _uri(name: str, path: str) -> str:
    return f"{SCHEME}{quote(name, safe='')}/{quote(path)}"


def _named(uri: str) -> tuple[str, str] | None:
    """Return the skill and the file that a URI names; None unless it is written as we write it."""
    if not uri.startswith(SCHEME) or len(uri) > MAX_URI:
        return None
    name, _slash, path = unquote(uri.removeprefix(SCHEME)).partition("/")
    return (name, path) if name and path and _uri(name, path) == uri else None


def _resource(uri: str, name: str, content: bytes) -> Resource:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return BinaryResource(
            uri=uri, name=name, data=content, mime_type="application/octet-stream"
        )
    kind = "text/markdown" if uri.endswith(".md") else "text/plain"
    return TextResource(uri=uri, name=name, text=text, mime_type=kind)
