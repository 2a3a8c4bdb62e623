"""Capabilities in words: what a skill may read, write, run, reach and spend, and what an update changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from butlers.skills.install.capabilities import Capabilities

VERBS = ("read", "write", "run", "reach", "spend", "ask for")
_SAME_KEY = "tokens"  # a longer text is no new permission


class PermissionState(StrEnum):
    SAME = "same"
    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that a skill may do. ``verb`` is one of VERBS."""

    verb: str
    what: str
    state: PermissionState = PermissionState.NEW

    def as_dict(self) -> dict[str, str]:
        return {"verb": self.verb, "what": self.what, "state": str(self.state)}


@dataclass(frozen=True, slots=True)
class _Statement:
    """``key`` names the thing, ``content`` its version: the hash of a script."""

    verb: str
    what: str
    key: str
    content: str = ""


def permissions_of(
    after: Capabilities, before: Capabilities | None = None
) -> tuple[Permission, ...]:
    """Return everything that the skill may do, compared with the version before, and what is gone.

    Without a version before, everything is new.
    """
    known = {(one.verb, one.key): one for one in _statements(before)} if before else {}
    now = list(_statements(after))
    found = [Permission(one.verb, one.what, _state(one, known)) for one in now]
    kept = {(one.verb, one.key) for one in now}
    found += [
        Permission(one.verb, one.what, PermissionState.GONE)
        for key, one in known.items()
        if key not in kept and one.key != ""
    ]
    return tuple(sorted(found, key=lambda one: VERBS.index(one.verb)))


def _state(one: _Statement, known: dict[tuple[str, str], _Statement]) -> PermissionState:
    before = known.get((one.verb, one.key))
    if one.key == "":  # nothing is no permission
        return PermissionState.SAME
    if before is None:
        return PermissionState.NEW
    return PermissionState.SAME if before.content == one.content else PermissionState.CHANGED


def _statements(capabilities: Capabilities) -> Iterator[_Statement]:
    """Yield one statement per thing; a statement with an empty key says that there is nothing."""
    kinds = capabilities.by_kind
    runs = bool(kinds.get("scripts") or kinds.get("mcpServers"))
    yield _Statement("read", "its own files", "own")
    if runs:
        yield _Statement("read", "the folder of the butler that runs it", "folder")
        yield _Statement("write", "the subfolder output of that folder", "output")
    else:
        yield _Statement("write", "nothing", "")
    variables = kinds.get("envVars", ())
    yield from (_Statement("read", f"the variable {name}", name) for name in variables)
    yield from _run_statements(capabilities)
    yield from _reach_statements(capabilities)
    listed, opened = capabilities.tokens
    text = f"about {listed} tokens in each session that lists it, {opened:,} more when it is opened"
    yield _Statement("spend", text, _SAME_KEY)
    yield from (_Statement("spend", f"whatever {name} pays for", name) for name in variables)
    for kind in ("allowed-tools", "dependencies"):
        words = "the tool" if kind == "allowed-tools" else "the skill"
        yield from (
            _Statement("ask for", f"{words} {item}", f"{kind}:{item}")
            for item in kinds.get(kind, ())
        )


def _run_statements(capabilities: Capabilities) -> Iterator[_Statement]:
    kinds, digests = capabilities.by_kind, capabilities.script_digests
    for path in kinds.get("scripts", ()):
        yield _Statement("run", f"the script {path}", path, digests.get(path, ""))
    for kind, words in (
        ("mcpServers", "the MCP server"),
        ("runs", "in other clients:"),
        ("systemPackages", "the system package"),
    ):
        for item in kinds.get(kind, ()):
            if "://" not in item or kind != "mcpServers":
                yield _Statement("run", f"{words} {item}", f"{kind}:{item}")
    if not any(kinds.get(kind) for kind in ("scripts", "mcpServers", "runs", "systemPackages")):
        yield _Statement("run", "nothing", "")


def _reach_statements(capabilities: Capabilities) -> Iterator[_Statement]:
    kinds = capabilities.by_kind
    remote = [item for item in kinds.get("mcpServers", ()) if "://" in item]
    yield from (_Statement("reach", f"the MCP server {item}", item) for item in remote)
    if kinds.get("network"):
        yield _Statement("reach", "the whole network", "network")
    elif not remote:
        yield _Statement("reach", "nothing on the network", "")
