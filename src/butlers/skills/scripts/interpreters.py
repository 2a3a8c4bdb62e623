"""Find the interpreter for a script."""

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

# From this release on, Node runs TypeScript by stripping its types.
NODE_WITH_TYPES = ">=22.6.0"
_TYPESCRIPT = frozenset({".ts", ".mts"})
_KINDS = ".py, .sh, .js and .ts"
_PROBE_S = 10


def interpreter(script: str, skill: SkillSpec, search_path: str) -> tuple[str, ...]:
    """Return the command that runs the script. Python scripts run with the Python of this process."""
    match script_language(script):
        case "py":
            return (sys.executable, "-B")
        case "sh":
            return (_shell(search_path),)
        case "js" if PurePosixPath(script).suffix.lower() in _TYPESCRIPT:
            return _typescript(script, skill, search_path)
        case "js":
            return _javascript(script, skill, search_path)
    raise SkillScriptError(f"{script} cannot be run: supported are {_KINDS}")


def _shell(search_path: str) -> str:
    for name in ("bash", "sh"):
        if found := shutil.which(name, path=search_path):
            return found
    raise SkillInterpreterMissing("a shell script needs bash or sh, but neither is on PATH")


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
    found = f"this machine has Node {version}" if version else "node is not on PATH"
    return SkillInterpreterMissing(
        f"{script} needs {needed}, or {others}; {found}",
        hint=f"install {needed}, or {others}",
    )


def _fits(written: str | None, version: str) -> bool:
    """Return True if the version is in the range. A pre-release counts as its release."""
    wanted = parse_range(written) if written else None
    return wanted is None or wanted.holds(version.partition("-")[0])


def _node(search_path: str) -> tuple[str | None, str | None]:
    node = shutil.which("node", path=search_path)
    return node, _version_of(node) if node else None


@lru_cache(maxsize=8)
def _version_of(node: str) -> str | None:
    try:
        ended = subprocess.run(
            [node, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return ended.stdout.strip().removeprefix("v") or None
