"""Search the text of a skill's files: invisible characters, piped shells, environment variables."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from butlers.config.locate import Place, place_of
from butlers.skills.names import script_language

# Bidirectional controls, zero width, tags, other invisible marks. Variation selectors and the joiner
# between emoji are allowed: people type those.
_HIDDEN = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[ -~])\u200d|\u200d(?=[ -~])"
)
_FETCH = r"(?:curl|wget|fetch|iwr|irm|invoke-webrequest)\b[^\n|;&]{0,400}"
_SHELL = (
    r"(?:sudo\s+(?:-\S+\s+)*)?(?:/\S+/)?(?:ba|z|da|k|fi)?sh\b"
    r"|(?:sudo\s+)?(?:python3?|perl|ruby|node|iex|powershell|pwsh)\b"
)
_PIPED = re.compile(
    rf"{_FETCH}\|[ \t]*(?:{_SHELL})"
    rf"|(?:{_SHELL})\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*{_FETCH}"
    rf"|\b(?:eval|source|\.)\s+[\"']?(?:\$\(|<\(|`)\s*{_FETCH}",
    re.IGNORECASE,
)
_ENV_READS = {
    "py": re.compile(
        r"""os\.environ(?:\.get\(|\.pop\(|\.setdefault\(|\[)\s*["'](\w+)["']|(?:os\.)?getenv\(\s*["'](\w+)["']"""
    ),
    "js": re.compile(r"""process\.env(?:\.([A-Za-z_]\w*)|\[\s*["'`](\w+)["'`])"""),
    "sh": re.compile(r"\$(?:([A-Z_][A-Z0-9_]*)\b|\{([A-Z_][A-Z0-9_]*)\b)"),
}
_SHELL_SETS = re.compile(
    r"(?:^|[\s;(])(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?([A-Z_][A-Z0-9_]*)\+?="
    r"|\bfor\s+([A-Z_][A-Z0-9_]*)\s+in\b|\bread\s+(?:-\w+\s+)*([A-Z_][A-Z0-9_]*)",
    re.MULTILINE,
)
# Set in every process, by the shell itself, or by the script runner.
_ALWAYS_SET = frozenset({
    "PATH", "HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP",
    "TMP", "LANG", "LC_ALL", "TERM", "TZ", "IFS", "OPTARG", "OPTIND", "RANDOM",
    "SECONDS", "LINENO", "FUNCNAME", "BASH", "BASH_SOURCE", "BASH_VERSION", "EUID", "UID", "PPID",
    "HOSTNAME", "REPLY", "NODE_ENV", "_", "BUTLERS_ACCESS", "TRACEPARENT",
})  # fmt: skip


def hidden_characters(text: str) -> Iterator[tuple[str, Place]]:
    """Yield the name and place of each run of invisible characters."""
    end = -1
    for found in _HIDDEN.finditer(text):
        if found.start() > end and not (found.start() == 0 and found[0] == "\ufeff"):
            letter = found[0]
            name = unicodedata.name(letter, "unnamed").title()
            yield f"U+{ord(letter):04X} {name}", place_of(text, found.start())
        end = found.end()


def piped_shells(text: str) -> Iterator[tuple[str, Place]]:
    """Yield each command that pipes a download into a shell or interpreter."""
    for found in _PIPED.finditer(text):
        yield " ".join(found[0].split()), place_of(text, found.start())


def read_variables(path: str, text: str) -> Iterator[tuple[str, Place]]:
    """Yield the environment variables that a script reads, each at its first use."""
    language = script_language(path)
    if language is None:
        return
    seen = {*_ALWAYS_SET}
    if language == "sh":
        seen |= {name for found in _SHELL_SETS.finditer(text) for name in found.groups() if name}
    for found in _ENV_READS[language].finditer(text):
        name = next(group for group in found.groups() if group)
        if name not in seen:
            seen.add(name)
            yield name, place_of(text, found.start())
