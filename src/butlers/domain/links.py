"""Links in a text, and which of them lead to a host that another text named.

Every pattern begins only where a word does and looks at each character a bounded number of times: these texts
may have a million characters, and somebody else wrote them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

# With a scheme, or as chat programs recognise them without one.
_LINK = re.compile(
    r"(?:(?<![a-z0-9+.-])[a-z0-9+.-]+://|www\.)[^\s<>\"'`\\]+"
    r"|(?<![\w@.-])(?:[\w-]+\.)+(?:xn--[a-z0-9-]+|[^\W\d_]{2,})(?:[/?#:][^\s<>\"'`\\]*|(?![\w@]))",
    re.IGNORECASE,
)
# Ends of names that are files more often than hosts.
_FILES = (".csv", ".doc", ".docx", ".gif", ".html", ".jpeg", ".jpg", ".json", ".md", ".mp3", ".mp4",
          ".pdf", ".png", ".pptx", ".py", ".txt", ".xlsx", ".xml", ".zip")  # fmt: skip
# As a browser reads it: slashes too many are none, and whatever stands before an @ is no host.
_HOST = re.compile(r"(?:[a-z0-9+.-]+:///*)?(?:[^/?#\s]*@)?([^/?#:\s]+)", re.IGNORECASE)
_TAIL = ".,;:!?)]}…"
_PUNYCODE = re.compile(r"(?<![a-z0-9-])xn--([a-z0-9-]{1,59})(?![a-z0-9-])")
_DOTS = str.maketrans("。", ".")
LONGEST_HOST = 253  # characters of one that can be looked up
MOST_SITES = 100  # of one text; each is looked for in all that others wrote


def links(text: str) -> tuple[str, ...]:
    """Each once, in their order."""
    found = (match.rstrip(_TAIL) for match in _LINK.findall(text))
    return tuple(dict.fromkeys(link for link in found if link and not _is_file(link)))


def links_from(text: str, outside: str) -> tuple[str, ...]:
    """The links to a site that the outside text names. The rest of a link does not count, nor what stands
    before the last two names of its host: what a fooled model would carry out stands exactly there. Of a text
    with links to more sites than anybody needs, all are taken for theirs."""
    if not outside.strip():
        return ()
    sites = {link: _site(host) for link in links(text) if (host := _host(link))}
    if len(set(sites.values())) > MOST_SITES:
        return tuple(sites)
    named = _plain(outside)
    theirs = {site for site in set(sites.values()) if site in named}
    return tuple(link for link, site in sites.items() if site in theirs)


def links_beyond(text: str, own: str) -> tuple[str, ...]:
    """The links to a host that the owner's own text does not name, itself or as a part of what it names."""
    named = {host for link in links(own) if (host := _host(link))}
    return tuple(
        link for link in links(text) if (host := _host(link)) and named.isdisjoint(_within(host))
    )


def _is_file(link: str) -> bool:
    return not set("/?#:") & set(link) and link.casefold().endswith(_FILES)


def _host(link: str) -> str | None:
    found = _HOST.match(link)
    host = _plain(unquote(found[1])).strip(".")[-LONGEST_HOST:] if found else ""
    return host.removeprefix("www.") or None


def _site(host: str) -> str:
    """Whoever has the last two names of a host has every name before them. An address of numbers has none."""
    labels = host.split(".")
    return host if labels[-1].isdigit() else ".".join(labels[-2:])


def _within(host: str) -> Iterator[str]:
    labels = host.split(".")
    yield host
    for first in range(1, len(labels) - 1):
        yield ".".join(labels[first:])


def _plain(text: str) -> str:
    """As hosts are compared: in one case and one form, without what is not seen, and punycode read."""
    if not text.isascii():
        text = "".join(char for char in text if unicodedata.category(char) != "Cf")
        text = unicodedata.normalize("NFKC", text).translate(_DOTS)
    return _PUNYCODE.sub(_decoded, text.casefold())


def _decoded(label: re.Match[str]) -> str:
    try:
        return label[1].encode().decode("punycode").casefold()
    except UnicodeError:
        return label[0]
