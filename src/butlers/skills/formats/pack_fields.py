"""Fields of a pack: read from a manifest's JSON, and written back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from butlers.config.locate import Place
from butlers.domain.json_safe import FrozenDict, freeze
from butlers.skills import names
from butlers.skills.findings import Findings, quoted
from butlers.skills.skill import PackMcpServer, ServerKind, SkillSpec
from butlers.skills.versions import parse_range, parse_requirement

KEYS = (
    "owner",
    "context",
    "scripts",
    "envVars",
    "mcpServers",
    "dependencies",
    "nodeVersion",
    "systemPackages",
    "network",
)
_SERVER_KEYS = ("name", "type", "command", "args", "url")
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(slots=True)
class PackFields:
    """Reader of pack fields. Unusable values are reported and left out."""

    document: Mapping[str, Any]
    findings: Findings
    place: Callable[..., Place]
    prefix: str = ""

    def read(self) -> dict[str, Any]:
        return {
            "owner": self.text("owner"),
            "context": self.paths("context"),
            "scripts": self.paths("scripts"),
            "env_vars": self._matching("envVars", "manifest-env-var", names.ENV_NAME.fullmatch),
            "mcp_servers": self._servers(),
            "dependencies": self._matching(
                "dependencies", "manifest-dependency", parse_requirement
            ),
            "node_version": self._node_version(),
            "system_packages": self._matching(
                "systemPackages", "manifest-system-package", names.SYSTEM_PACKAGE.fullmatch
            ),
            "network": self._flag("network"),
        }

    def text(self, key: str) -> str | None:
        value = self.document.get(key)
        if value is None or isinstance(value, str):
            return value or None
        self._wrong(key, "must be a string")
        return None

    def _flag(self, key: str) -> bool:
        value = self.document.get(key)
        if value is not None and not isinstance(value, bool):
            self._wrong(key, "must be true or false")
        return value is True

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(text for _position, text in self._each(key))

    def _each(self, key: str) -> Iterator[tuple[int, str]]:
        """Yield the strings of a list with their positions."""
        value = self.document.get(key)
        if value is None:
            return
        if not isinstance(value, list | tuple):
            self._wrong(key, "must be a list of strings")
            return
        for position, item in enumerate(value):
            if isinstance(item, str):
                yield position, item
            else:
                message = f"must be a list of strings, not {quoted(repr(item), 20)}"
                self._wrong(key, message, position)

    def paths(self, key: str) -> tuple[str, ...]:
        kept = []
        for position, written in self._each(key):
            path = names.inner_path(written)
            if path is None:
                self.add(
                    "manifest-path",
                    key,
                    f"{quoted(written)} is not a path inside the skill",
                    position,
                    hint="write it relative to the skill's folder, without '..'",
                )
            else:
                kept.append(path)
        return tuple(kept)

    def add(
        self, code: str, key: str, message: str, *position: int, hint: str | None = None
    ) -> None:
        at = self.place(key, *position)
        self.findings.add(code, message, entry=f"{self.prefix}{key}", at=at, hint=hint)

    def _wrong(self, key: str, message: str, *position: int) -> None:
        self.add("manifest-type", key, f"{key} {message}", *position)

    def _matching(
        self, key: str, code: str, accepts: Callable[[str], object | None]
    ) -> tuple[str, ...]:
        kept = []
        for position, written in self._each(key):
            if accepts(written) is None:
                self.add(code, key, f"{quoted(written)} is not valid in {key}", position)
            else:
                kept.append(written)
        return tuple(kept)

    def _node_version(self) -> str | None:
        written = self.text("nodeVersion")
        if written is not None and parse_range(written) is None:
            self.add(
                "manifest-node-version",
                "nodeVersion",
                f"{quoted(written)} is not a version range",
                hint='such as ">=20.0.0"',
            )
            return None
        return written

    def _servers(self) -> tuple[PackMcpServer, ...]:
        value = self.document.get("mcpServers")
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self._wrong("mcpServers", "must be a list of servers")
            return ()
        read = (self._server(item, position) for position, item in enumerate(value))
        return tuple(server for server in read if server is not None)

    def _server(self, item: Any, position: int) -> PackMcpServer | None:
        problem = _server_problem(item)
        if problem is not None:
            message = f"server {position + 1} {problem}"
            self.add("manifest-mcp-server", "mcpServers", message, position)
            return None
        return PackMcpServer(
            name=item["name"],
            kind=ServerKind(item["type"]),
            command=item.get("command"),
            args=tuple(item.get("args") or ()),
            url=item.get("url"),
            extra=freeze({key: item[key] for key in item if key not in _SERVER_KEYS}),
        )


def _server_problem(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return "is not an object"
    name, args = item.get("name"), item.get("args") or []
    if not isinstance(name, str) or not _SERVER_NAME.fullmatch(name):
        return "needs a name of letters, digits, '-', '_' and '.'"
    if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
        return "has args that are not a list of strings"
    match item.get("type"):
        case "local":
            if not isinstance(item.get("command"), str) or not item["command"]:
                return "is local and has no command"
            return None if item.get("url") is None else "is local and has a url"
        case "remote":
            if not isinstance(item.get("url"), str) or not _is_web_address(item["url"]):
                return "is remote and has no http or https url"
            return None if item.get("command") is None else "is remote and has a command"
        case kind:
            return f"has the type {quoted(str(kind), 20)}; there are 'local' and 'remote'"


def _is_web_address(written: str) -> bool:
    try:
        parts = urlsplit(written)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def pack_document(skill: SkillSpec) -> dict[str, Any]:
    """Return the pack's non-empty fields in JSON form."""
    document: dict[str, Any] = {
        "owner": skill.owner,
        "context": list(skill.context),
        "scripts": list(skill.scripts),
        "envVars": list(skill.env_vars),
        "mcpServers": [_server_document(server) for server in skill.mcp_servers],
        "dependencies": list(skill.dependencies),
        "nodeVersion": skill.node_version,
        "systemPackages": list(skill.system_packages),
        "network": skill.network or None,
    }
    return {key: value for key, value in document.items() if value not in (None, [])}


def _server_document(server: PackMcpServer) -> dict[str, Any]:
    document = {
        "name": server.name,
        "type": str(server.kind),
        "command": server.command,
        "args": list(server.args),
        "url": server.url,
    }
    return {key: value for key, value in document.items() if value not in (None, [])} | FrozenDict(
        server.extra
    )
