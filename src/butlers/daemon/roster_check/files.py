"""Conventions of a butler's files: first lines, word counts, imports, ports, declarations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from butlers.daemon.roster_check.butler import RosterButler, problem
from butlers.domain.diagnostic import Diagnostic

REQUIRED = ("butler.toml", "MANIFESTO.md", "CLAUDE.md", "AGENTS.md")
MAX_WORDS = 600
PORTS = {
    "switchboard": 40100,
    "general": 40101,
    "relationship": 40102,
    "health": 40103,
    "messenger": 40104,
    "finance": 40105,
    "travel": 40106,
}
FIRST_PORT, LAST_PORT = 40100, 40199
_NOTES = "# Notes to self"
_STEP = re.compile(r"^\s*\d+[.)] ", re.MULTILINE)
SHARED_SKILLS = ("butler-memory", "butler-notifications")


def check_files(butler: RosterButler) -> Iterator[Diagnostic]:
    folder = butler.folder
    for name in REQUIRED:
        if not (folder / name).is_file():
            yield problem(
                "file", f"{name} is missing", folder / name, "CONTRIBUTING.md lists the files"
            )
    yield from _prompt_files(folder)
    yield from _manifesto(folder / "MANIFESTO.md")
    yield from _identity(butler)
    yield from _module_package(butler)
    yield from _imports(folder)
    if butler.is_domain:
        yield from _shared_skills(folder)


def check_ports(butlers: Sequence[RosterButler]) -> Iterator[Diagnostic]:
    taken: dict[int, str] = {}
    for butler in butlers:
        if butler.config is None:
            continue
        port, file = butler.config.port, butler.folder / "butler.toml"
        if port in taken:
            yield problem(
                "port", f"port {port} is also {taken[port]}'s", file, "take the next free one"
            )
        taken[port] = butler.name
        wanted = PORTS.get(butler.name, port)
        if port != wanted or not FIRST_PORT <= port <= LAST_PORT:
            yield problem("port", f"port {port} is not in 401xx as assigned", file, f"{wanted}")


def _prompt_files(folder: Path) -> Iterator[Diagnostic]:
    claude, agents = folder / "CLAUDE.md", folder / "AGENTS.md"
    if claude.is_file() and claude.read_text().strip() != "@AGENTS.md":
        yield problem("claude-md", "CLAUDE.md is not just @AGENTS.md", claude, "write @AGENTS.md")
    if agents.is_file():
        yield from _agents(agents, agents.read_text())


def _agents(file: Path, text: str) -> Iterator[Diagnostic]:
    if text.splitlines()[:1] != ["@../shared/AGENTS.md"]:
        yield problem("agents-md", "the first line is not @../shared/AGENTS.md", file)
    body = text.partition(_NOTES)[0]
    if _NOTES not in text:
        yield problem("agents-md", f"there is no section {_NOTES!r}", file)
    if "## Tools" not in body:
        yield problem("agents-md", "there is no section '## Tools' that lists the tools", file)
    if len(body.split()) >= MAX_WORDS:
        yield problem("agents-md", f"more than {MAX_WORDS} words", file, "move workflows to skills")
    if len(_STEP.findall(body)) >= 3 or "```" in body or "\n|" in body:
        yield problem(
            "agents-md",
            "it contains a procedure, a table or a block of code",
            file,
            "move workflows to a skill and refer to it in one line",
        )


def _manifesto(file: Path) -> Iterator[Diagnostic]:
    if file.is_file() and "Out of scope" not in file.read_text():
        yield problem("manifesto", "it does not say what is out of scope", file, "Out of scope: …")


def _identity(butler: RosterButler) -> Iterator[Diagnostic]:
    config, file = butler.config, butler.folder / "butler.toml"
    if config is None:
        return
    if config.name != butler.name:
        yield problem(
            "name", f"the butler is named {config.name!r}, its folder {butler.name!r}", file
        )
    if (config.db.name, config.db.schema) != ("butlers", config.name.replace("-", "_")):
        yield problem("schema", f"it does not have its own schema {config.name!r} in butlers", file)
    if not config.description.strip():
        yield problem("description", "the description is empty", file)
    if config.switchboard is None and butler.is_domain:
        yield problem("switchboard", "[butler.switchboard] advertise = true is missing", file)


def _module_package(butler: RosterButler) -> Iterator[Diagnostic]:
    tools = butler.folder / "tools"
    if not tools.is_dir() or butler.config is None:
        return
    if not (butler.folder / "modules" / "__init__.py").is_file():
        hint = "without a module its tools cannot be called"
        yield problem("module", "tools/ without modules/__init__.py", tools, hint)
    if butler.name not in butler.config.modules:
        file = butler.folder / "butler.toml"
        yield problem("module", f"[modules.{butler.name}] is not declared", file)


def _imports(folder: Path) -> Iterator[Diagnostic]:
    for file in sorted(folder.rglob("*.py")):
        for imported in _imported(ast.parse(file.read_text())):
            top = imported.partition(".")[0]
            allowed = imported.startswith(("butlers.sdk", "butlers.domain"))
            if top in ("butlers", "roster") and not allowed:
                hint = "a roster folder imports butlers.sdk, butlers.domain and its own folder"
                yield problem("import", f"it imports {imported}", file, hint)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def _shared_skills(folder: Path) -> Iterator[Diagnostic]:
    for name in SHARED_SKILLS:
        link = folder / "skills" / name
        shared = folder.parent / "shared" / "skills" / name
        if shared.is_dir() and not (link.is_symlink() and link.resolve() == shared.resolve()):
            hint = f"ln -s ../../shared/skills/{name} {link.parent}"
            yield problem("shared-skill", f"the shared skill {name} is not linked", link, hint)
