"""Separates the new text of a mail from the history that it quotes."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_ATTRIBUTION = 300  # characters of "On Monday, Anna wrote:"
HEADER_LINES = 6  # in which a forwarded header is complete
_FROM = ("from:", "von:", "de:", "da:", "van:")
_SUBJECT = ("subject:", "betreff:", "objet:", "oggetto:", "onderwerp:", "asunto:")
_RULE = "-----"


def split_quoted(text: str) -> tuple[str, str]:
    """Return the new text and the quoted history at its end. A mail that only quotes is all new."""
    lines = text.splitlines()
    start = _start_of_history(lines)
    new = "\n".join(lines[:start]).strip()
    if not new:
        return text.strip(), ""
    return new, "\n".join(lines[start:]).strip()


def _start_of_history(lines: Sequence[str]) -> int:
    for number, line in enumerate(lines):
        words = line.strip()
        if words.startswith(_RULE) and words.endswith(_RULE) and any(map(str.isalpha, words)):
            return number  # -----Original Message-----
        if words.lower().startswith(_FROM) and _is_header(lines[number : number + HEADER_LINES]):
            return number - (number > 0 and _is_rule(lines[number - 1]))
        if _is_attribution(lines, number):
            return number
    return _start_of_quotes(lines)


def _is_header(lines: Sequence[str]) -> bool:
    return any(line.strip().lower().startswith(_SUBJECT) for line in lines)


def _is_rule(line: str) -> bool:
    words = line.strip()
    return len(words) >= len(_RULE) and not words.strip("_-=*")


def _is_attribution(lines: Sequence[str], number: int) -> bool:
    """Return whether the line introduces a quote: it ends with a colon, and a quoted line follows."""
    words = lines[number].strip()
    if not words.endswith(":") or words.startswith(">") or len(words) > LONGEST_ATTRIBUTION:
        return False
    after = [line for line in lines[number + 1 : number + 4] if line.strip()]
    if not after or not after[0].lstrip().startswith(">"):
        return False
    # Answers between the quotes are new text: only a quote up to the end is history.
    return all(not line.strip() or line.lstrip().startswith(">") for line in lines[number + 1 :])


def _start_of_quotes(lines: Sequence[str]) -> int:
    """Return the start of the block of quoted lines at the end."""
    start = len(lines)
    for number in range(len(lines) - 1, -1, -1):
        words = lines[number].strip()
        if words.startswith(">"):
            start = number
        elif words:
            break
    return start
