"""Find the environment variables that a script reads."""

from __future__ import annotations

from collections.abc import Iterator

from butlers.config.locate import Place
from butlers.skills.check.text import SkillText, linear
from butlers.skills.names import script_language

_MENTIONS = {"py": b"env", "js": b"env", "sh": b"$"}
_READS = {
    "py": linear(
        rb"""\bos\.environ(?:\.get\(|\.pop\(|\.setdefault\(|\[)\s*["'](\w+)["']"""
        rb"""|\b(?:os\.)?getenv\(\s*["'](\w+)["']"""
    ),
    "js": linear(rb"""\bprocess\.env(?:\??\.([A-Za-z_]\w*)|\[\s*["'`](\w+)["'`])"""),
    "sh": linear(rb"\$(?:([A-Z_][A-Z0-9_]*)\b|\{([A-Z_][A-Z0-9_]*)\b)"),
}
# `from os import environ`, with other names and `as`.
_PY_IMPORT = linear(rb"\bfrom[ \t]+os[ \t]+import[ \t]+\(?([\w, \t\n]*)")
# `const { A, B: b = "" } = process.env`, `const env = process.env`, `const { env } = process`.
_JS_DESTRUCTURED = linear(rb"\{([^{}]*)\}\s*=\s*process\.env\b\s*(?:[^.\[?\s]|$|\n)")
_JS_ALIAS = linear(
    rb"\b([A-Za-z_]\w*)\s*=\s*process\.env\b\s*(?:[^.\[?\s]|$|\n)"
    rb"|\{\s*(?:env\s*:\s*(\w+)|(env))\s*\}\s*=\s*process\b"
    rb"""|\bimport\s*\{\s*(?:env\s+as\s+(\w+)|(env))\s*\}\s*from\s*["'](?:node:)?process["']"""
)
_MAX_ALIASES = 5
_SHELL_SETS = linear(
    rb"(?m)(?:^|[\s;(])(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?([A-Z_][A-Z0-9_]*)\+?="
    rb"|\bfor\s+([A-Z_][A-Z0-9_]*)\s+in\b|\bread\s+(?:-\w+\s+)*([A-Z_][A-Z0-9_]*)"
)
# Set in every process, by the shell itself, or by the script runner.
_ALWAYS_SET = frozenset({
    "PATH", "HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP",
    "TMP", "LANG", "LC_ALL", "TERM", "TZ", "IFS", "OPTARG", "OPTIND", "RANDOM",
    "SECONDS", "LINENO", "FUNCNAME", "BASH", "BASH_SOURCE", "BASH_VERSION", "EUID", "UID", "PPID",
    "HOSTNAME", "REPLY", "NODE_ENV", "_", "BUTLERS_ACCESS", "TRACEPARENT",
})  # fmt: skip


def read_variables(path: str, text: SkillText) -> Iterator[tuple[str, Place]]:
    """Yield the environment variables that a script reads, each at its first use."""
    language = script_language(path)
    if language is None or _MENTIONS[language] not in text.data:
        return
    found = sorted(_reads(language, text.data))
    seen = {*_ALWAYS_SET}
    if language == "sh" and any(name not in seen for _offset, name in found):
        seen |= {name for match in _SHELL_SETS.finditer(text.data) for name in _names(match)}
    for offset, name in found:
        if name not in seen:
            seen.add(name)
            yield name, text.place(offset)


def _reads(language: str, data: bytes) -> Iterator[tuple[int, str]]:
    for found in _READS[language].finditer(data):
        yield from ((found.start(), name) for name in _names(found))
    if language == "py":
        yield from _imported_reads(data)
    elif language == "js":
        yield from _destructured_reads(data)


def _names(found: object) -> list[str]:
    return [group.decode() for group in found.groups() if group]  # type: ignore[attr-defined]


def _imported_reads(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield reads of ``environ`` and ``getenv`` under the names that the script imports."""
    aliases = set()
    for found in _PY_IMPORT.finditer(data):
        for part in found[1].split(b"\n\n")[0].split(b","):
            words = part.split()
            if words and words[0] in (b"environ", b"getenv"):
                aliases.add(words[2] if len(words) > 2 and words[1] == b"as" else words[0])
    for alias in sorted(aliases)[:_MAX_ALIASES]:
        pattern = rb"\b%s(?:\.get\(|\.pop\(|\.setdefault\(|\[|\()\s*[\"'](\w+)[\"']" % alias
        for read in linear(pattern).finditer(data):
            if data[read.start() - 1 : read.start()] != b".":
                yield read.start(), read[1].decode()


def _destructured_reads(data: bytes) -> Iterator[tuple[int, str]]:
    for found in _JS_DESTRUCTURED.finditer(data):
        for part in found[1].split(b","):
            name = part.split(b":")[0].split(b"=")[0].strip()
            if _is_name(name):
                yield found.start(), name.decode()
    aliases = {group for found in _JS_ALIAS.finditer(data) for group in found.groups() if group}
    for alias in sorted(aliases)[:_MAX_ALIASES]:
        pattern = rb"\b%s(?:\??\.([A-Za-z_]\w*)|\[\s*[\"'`](\w+)[\"'`])" % alias
        for read in linear(pattern).finditer(data):
            if data[read.start() - 1 : read.start()] != b".":
                yield from ((read.start(), name) for name in _names(read))


def _is_name(name: bytes) -> bool:
    return name.isascii() and name.decode().isidentifier()
