"""Find commands that run a download: piped into a shell, or substituted into a command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from butlers.config.locate import Place
from butlers.skills.check.text import SkillText, decoded, linear

_FETCH = linear(rb"\b(?:curl|wget|fetch|iwr|irm|invoke-webrequest)\b", ignore_case=True)
# Characters that can end a statement, or split it.
_MARK = re.compile(rb"[|;&\n\"']")
# `bash -c "$(`, `sh <(`, `eval "$(`, `source <(`, `. <(`, with backticks as well.
_SUBSTITUTED = linear(
    rb"(?s).*(?:^|[\s;&|(/\"'`])(?:(?:ba|z|da|k|fi)?sh|python[0-9.]*|perl|ruby|node|pwsh|powershell"
    rb"|eval|source|\.)\s+(?:-\w+\s+)*[\"']?(?:\$\(|<\(|`)\s*",
    ignore_case=True,
)
_LOOK_BACK = 200  # bytes before a download that are searched for the command around it
_SHELLS = frozenset(
    ("sh", "bash", "zsh", "dash", "ksh", "fish", "iex", "invoke-expression", "powershell", "pwsh")
)
_INTERPRETERS = frozenset({"python", "perl", "ruby", "node", "php"})
# Words before a command that do not change what it runs.
_PREFIXES = frozenset({"sudo", "doas", "env", "nohup", "exec", "command", "time"})
_OPTIONS_WITH_VALUE = frozenset({"-u", "-g", "--user", "--group"})  # of sudo
_STANDARD_INPUT = frozenset({"-", "/dev/stdin"})
_PROGRAM_OPTIONS = frozenset("cemnp")  # module or code, in Python, Perl, Ruby and Node
_VERSION = "0123456789."


def piped_shells(text: SkillText) -> Iterator[tuple[str, Place]]:
    """Yield each command that runs a download with a shell or interpreter.

    Every byte belongs to one statement at most, so that the work is linear in the size of the text.
    """
    position = 0
    while found := _FETCH.search(text.data, position):
        start, position = found.span()
        if text.data[position : position + 1] == b"(":  # a function, such as fetch() in JavaScript
            continue
        parts, position = _pipeline(text.data, start, position)
        if _is_substituted(text.data, start) or any(map(_runs_input, parts[1:])):
            written = decoded(b"|".join(parts)[:400])
            yield " ".join(written.replace("\\\n", " ").split()), text.place(start)


def _pipeline(data: bytes, start: int, position: int) -> tuple[list[bytes], int]:
    """Return the parts between the pipes of the statement at ``start``, and the offset of its end."""
    parts: list[bytes] = []
    begin, quote = start, b""
    for mark in _MARK.finditer(data, position):
        at, sign = mark.start(), mark[0]
        if at < position:  # the second half of an operator
            continue
        if sign in (b'"', b"'"):
            quote = b"" if quote == sign else quote or sign
        elif sign == b"|":
            if data[at + 1 : at + 2] == b"|":
                return [*parts, data[begin:at]], at
            parts.append(data[begin:at])
            begin = at + 2 if data[at + 1 : at + 2] == b"&" else at + 1
            position = begin
        elif sign == b"\n":
            if not _continues(data, begin, at):
                return [*parts, data[begin:at]], at
        elif not quote and not (sign == b"&" and data[at - 1 : at] in (b">", b"<")):
            return [*parts, data[begin:at]], at
    return [*parts, data[begin:]], len(data)


def _continues(data: bytes, begin: int, end: int) -> bool:
    """Return True if the statement goes on after the line end: after a backslash or a pipe."""
    last = end - 1
    while last >= begin and data[last] in b" \t\r":
        last -= 1
    return last < begin or data[last] == ord("\\")


def _is_substituted(data: bytes, start: int) -> bool:
    before = data[max(0, start - _LOOK_BACK) : start]
    return before.rstrip()[-1:] in (b"(", b"`") and _SUBSTITUTED.fullmatch(before) is not None


def _runs_input(part: bytes) -> bool:
    """Return True if the command runs its standard input."""
    words = [word.strip("\"'`") for word in decoded(part[:400]).replace("\\\n", " ").split()]
    while words and (
        words[0].lower() in _PREFIXES or words[0].startswith("-") or "=" in words[0] or not words[0]
    ):
        del words[: 2 if words[0] in _OPTIONS_WITH_VALUE else 1]
    if not words:
        return False
    command = words[0].rpartition("/")[2].lower().strip("()`{}.,:").removesuffix(".exe")
    if command in _SHELLS:
        return True
    return command.rstrip(_VERSION) in _INTERPRETERS and _reads_program(words[1:])


def _reads_program(arguments: list[str]) -> bool:
    """Return True if an interpreter with these arguments takes its program from its input.

    It does not if it gets a module (``-m json.tool``), code (``-c``, ``-e``) or a file.
    """
    for argument in arguments:
        if argument in _STANDARD_INPUT:
            return True
        if argument.startswith("--") or (
            argument.startswith("-") and _PROGRAM_OPTIONS.isdisjoint(argument)
        ):
            continue
        return argument.startswith((">", "<", "2>", "#")) or not argument
    return True
