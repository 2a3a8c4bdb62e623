"""Links in a text, and which of them lead to a host that another text named."""

from __future__ import annotations

import re

# With a scheme, or as chat programs recognise them without one.
_LINK = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://|www\.)[^\s<>\"'`\\]+"
    r"|(?<![\w@.-])(?:[\w-]+\.)+[a-z]{2,}(?:[/?#:][^\s<>\"'`\\]*|(?![\w@]))",
    re.IGNORECASE,
)
# Ends of names that are files more often than hosts.
_FILES = (".csv", ".doc", ".docx", ".gif", ".html", ".jpeg", ".jpg", ".json", ".md", ".mp3", ".mp4",
          ".pdf", ".png", ".pptx", ".py", ".txt", ".xlsx", ".xml", ".zip")  # fmt: skip
_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:[^/@\s]*@)?([^/?#:\s]+)", re.IGNORECASE)
_TAIL = ".,;:!?)]}…"


def links(text: str) -> tuple[str, ...]:
    """Each once, in their order."""
    found = (match.rstrip(_TAIL) for match in _LINK.findall(text))
    return tuple(dict.fromkeys(link for link in found if link and not _is_file(link)))


def links_from(text: str, outside: str) -> tuple[str, ...]:
    """The links whose host the outside text names. The rest of a link does not count: what a fooled model
    would carry out stands exactly there."""
    named = outside.casefold()
    return tuple(link for link in links(text) if (host := _host(link)) and host in named)


def _is_file(link: str) -> bool:
    return not set("/?#:") & set(link) and link.casefold().endswith(_FILES)


def _host(link: str) -> str | None:
    found = _HOST.match(link)
    return found[1].casefold().removeprefix("www.") if found else None
