"""What a script is run with, found on the machine or missed by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import PurePosixPath

from butlers.domain.errors import SkillInterpreterMissing, SkillScriptError
from butlers.skills.names import script_language
from butlers.skills.skill import SkillSpec
from butlers.skills.versions import parse_range

# Since this release Node runs TypeScript by leaving its types out.
NODE_WITH_TYPES = ">=22.6.0"
_TYPESCRIPT = frozenset({".ts", ".mts"})
_KINDS = ".py, .sh, .js and .ts"
_PROBE_S = 10


def interpreter(script: str, skill: SkillSpec, search_path: str) -> tuple[str, ...]:
    """The command that takes the script as its next word. Our own Python runs Python: it is always there."""
    match script_language(script):
        case "py":
            return (sys.executable, "-B")
        case "sh":
            return (_shell(search_path),)
        case "js" if PurePosixPath(script).suffix.lower() in _TYPESCRIPT:
            return _typescript(script, skill, search_path)
        case "js":
            return _javascript(script, skill, search_path)
    raise SkillScriptError(f"{script} can not be run: scripts are {_KINDS}")


def _shell(search_path: str) -> str:
    for name in ("bash", "sh"):
        if found := shutil.which(name, path=search_path):
            return found
    raise SkillInterpreterMissing("a shell script needs bash or sh, and PATH has neither")


def _javascript(script: str, skill: SkillSpec, search_path: str) -> tuple[str, ...]:
    node, version = _node(search_path)
    if node and version and _fits(skill.node_version, version):
        return (node,)
    if not skill.node_version and (bun := shutil.which("bun", path=search_path)):
        return (bun, "run")
    raise _missing(script, skill.node_version or "Node", version, "bun")


def _typescript(script: str, skill: SkillSpec, search_path: str) -> tuple[str, ...]:
    node, version = _node(search_path)
    if node and version and _fits(NODE_WITH_TYPES, version) and _fits(skill.node_version, version):
        return (node, "--experimental-strip-types", "--disable-warning=ExperimentalWarning")
    tsx = shutil.which("tsx", path=search_path)
    if tsx and version and _fits(skill.node_version, version):
        return (tsx,)
    if not skill.node_version and (bun := shutil.which("bun", path=search_path)):
        return (bun, "run")
    raise _missing(script, f"{NODE_WITH_TYPES} {skill.node_version or ''}", version, "tsx or bun")


def _missing(script: str, wanted: str, version: str | None, others: str) -> SkillInterpreterMissing:
    wanted = wanted.strip()
    needed = wanted if wanted == "Node" else f"Node {wanted}"
    there = f"this machine has Node {version}" if version else "PATH has no node"
    return SkillInterpreterMissing(
        f"{script} needs {needed}, or {others}: {there}",
        hint=f"install {needed}, or {others}",
    )


def _fits(written: str | None, version: str) -> bool:
    """A pre-release counts as the release that it comes before."""
    wanted = parse_range(written) if written else None
    return wanted is None or wanted.holds(version.partition("-")[0])


def _node(search_path: str) -> tuple[str | None, str | None]:
    node = shutil.which("node", path=search_path)
    return node, _version_of(node) if node else None


@lru_cache(maxsize=8)
def _version_of(node: str) -> str | None:
    try:
        told = subprocess.run(
            [node, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return told.stdout.strip().removeprefix("v") or None
