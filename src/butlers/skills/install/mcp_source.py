"""Skills that an MCP server offers (SEP-2640): listed, fetched file by file, each verified by its hash.

The hashes are the server's own: they show that what is installed is what was listed, not that it can be
trusted. Consent and the registered hash are those of every installed skill.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from butlers.domain.errors import InvalidArguments, SkillFetchFailed, SkillTooLarge
from butlers.domain.redaction import redactor
from butlers.skills.findings import printable, quoted
from butlers.skills.install.collection import CollectionSkill, SkillCollection
from butlers.skills.names import inner_path
from butlers.skills.reader import read_skill
from butlers.skills.tree import MAX_BYTES, MAX_FILES, translate_os_errors

if TYPE_CHECKING:
    from fastmcp import Client
    from fastmcp.skills import Skill, SkillResource

T = TypeVar("T")

PREFIX = "mcp+"
MAX_OFFERED = 1_000  # skills of one server
_SECONDS = 60.0
_FILE = "SKILL.md"
_COMPARED = ("name", "description", "license", "compatibility")


@dataclass(frozen=True, slots=True)
class McpSource:
    """Address of an MCP server that offers skills, and the token to show there, if it wants one."""

    url: str
    token: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """The address without credentials and query."""
        scheme, host, path = urlsplit(self.url)[:3]
        return f"{PREFIX}{scheme}://{host.rpartition('@')[2]}{path}"


def mcp_source(written: str) -> McpSource | None:
    """Parse ``mcp+https://host/mcp``. Return None for other text."""
    if not written.startswith(PREFIX):
        return None
    url = written.removeprefix(PREFIX)
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (local and parts.scheme == "http")):
        raise InvalidArguments(
            f"{redactor.scrub(url)!r} is not the address of an MCP server",
            hint=f"use {PREFIX}https://host/mcp; http only on this machine",
        )
    return McpSource(url)


@dataclass(slots=True)
class ServerSource:
    """An MCP server; skills are written below ``scratch`` when they are asked for."""

    source: McpSource
    scratch: Path
    commit: str | None = None
    _offered: dict[str, Skill] = field(default_factory=dict)

    def collection(self) -> SkillCollection:
        found = self._ask(lambda client: client.list_skills())
        if len(found) > MAX_OFFERED:
            raise SkillTooLarge(f"the server offers more than {MAX_OFFERED:,} skills")
        self._offered = {_path(skill): skill for skill in found}
        return SkillCollection(tuple(CollectionSkill(path) for path in sorted(self._offered)))

    def folder(self, path: str) -> Path:
        """Fetch one skill, verify every file, and return its folder."""
        if path not in self._offered:
            raise SkillFetchFailed("the server offers no such skill", hint="add --skill NAME")
        offered = self._offered[path]
        files = _listed_files(offered)
        contents = self._ask(lambda client: _read_all(client, files))
        target = (
            self.scratch / hashlib.sha256(path.encode()).hexdigest()[:16] / offered.frontmatter.name
        )
        with translate_os_errors(target):
            for inner, content in contents.items():
                file = target / inner
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        _require_same_fields(offered, target)
        return target

    def origin(self, path: str) -> str:
        return f"{self.source.origin}#{printable(path)}" if path else self.source.origin

    def _ask(self, ask: Callable[[Client[Any]], Awaitable[T]]) -> T:
        """Ask the server in a connection of its own. Raise SkillFetchFailed."""
        try:
            return asyncio.run(_asked(self.source, ask))
        except SkillFetchFailed:
            raise
        except Exception as error:  # the edge: the server is code of others
            what = "it took too long" if isinstance(error, TimeoutError) else str(error)
            raise SkillFetchFailed(
                f"{self.source.origin}: {redactor.scrub(what)[:300]}",
                hint="check the address, and that the server offers skills",
            ) from error


async def _asked(source: McpSource, ask: Callable[[Client[Any]], Awaitable[T]]) -> T:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport
    from fastmcp.skills import SkillsClientExtension

    async with (
        asyncio.timeout(_SECONDS),
        Client(
            StreamableHttpTransport(source.url, auth=source.token),
            extensions=[SkillsClientExtension()],
        ) as client,
    ):
        return await ask(client)


def _path(skill: Skill) -> str:
    """Return the skill's path at the server: `skill://a/b/SKILL.md` is a/b."""
    parts = urlsplit(skill.uri)
    return unquote(f"{parts.netloc}{parts.path}").removesuffix(f"/{_FILE}")


def _listed_files(skill: Skill) -> dict[str, SkillResource]:
    """Return the files by their path inside the skill. Raise for paths that could leave it."""
    if isinstance(skill.resources, str):
        raise SkillFetchFailed(
            f"{skill.frontmatter.name} has no fixed list of files, so nothing could be verified",
            hint="only skills with a list of hashes are installed",
        )
    root = skill.uri.removesuffix(_FILE)
    files = {}
    for resource in skill.resources:
        inner = inner_path(unquote(resource.uri.removeprefix(root)))
        if inner is None or not resource.uri.startswith(root):
            raise SkillFetchFailed(f"{quoted(resource.uri)} is not a file of the skill")
        files[inner] = resource
    if len(files) > MAX_FILES or sum(one.size for one in files.values()) > MAX_BYTES:
        raise SkillTooLarge(f"{skill.frontmatter.name} has too many files, or too large ones")
    return files


async def _read_all(client: Client[Any], files: dict[str, SkillResource]) -> dict[str, bytes]:
    return {path: await _read(client, resource) for path, resource in files.items()}


async def _read(client: Client[Any], resource: SkillResource) -> bytes:
    parts = await client.read_resource(resource.uri)
    content = b"".join(_bytes(part) for part in parts)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if len(content) != resource.size or digest != resource.digest:
        raise SkillFetchFailed(
            f"{resource.uri} is not the file that the server listed: {digest}",
            hint="try again; if it stays so, the server changes its files",
        )
    return content


def _bytes(part: Any) -> bytes:
    text = getattr(part, "text", None)
    return text.encode() if isinstance(text, str) else base64.b64decode(part.blob)


def _require_same_fields(offered: Skill, folder: Path) -> None:
    """Raise unless SKILL.md says what the list of skills said."""
    skill = read_skill(folder).skill
    for name in _COMPARED:
        listed = offered.frontmatter.root.get(name)
        found = getattr(skill, name, None)
        if str(listed or "").strip() != str(found or "").strip():
            raise SkillFetchFailed(
                f"{offered.frontmatter.name}: the {name} in SKILL.md is not the listed one",
                hint="the server offers something else than it lists",
            )
