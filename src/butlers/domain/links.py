"""Links in a text, and the links whose host another text names.

Every pattern starts only at the start of a word and looks at each character a bounded number of times: the
texts may be a million characters long and are untrusted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

# With a scheme, or without one as chat programs recognize them.
_LINK = re.compile(
    r"(?:(?<![a-z0-9+.-])[a-z0-9+.-]+://|www\.)[^\s<>\"'`\\]+"
    r"|(?<![\w@.-])(?:[\w-]+\.)+(?:xn--[a-z0-9-]+|[^\W\d_]{2,})(?:[/?#:][^\s<>\"'`\\]*|(?![\w@]))",
    re.IGNORECASE,
)
# Suffixes of names that are more often files than hosts.
_FILES = (".csv", ".doc", ".docx", ".gif", ".html", ".jpeg", ".jpg", ".json", ".md", ".mp3", ".mp4",
          ".pdf", ".png", ".pptx", ".py", ".txt", ".xlsx", ".xml", ".zip")  # fmt: skip
# As a browser reads it: extra slashes are ignored, and the part before an @ is not the host.
_HOST = re.compile(r"(?:[a-z0-9+.-]+:///*)?(?:[^/?#\s]*@)?([^/?#:\s]+)", re.IGNORECASE)
_TAIL = ".,;:!?)]}…"
_PUNYCODE = re.compile(r"(?<![a-z0-9-])xn--([a-z0-9-]{1,59})(?![a-z0-9-])")
_DOTS = str.maketrans("。", ".")
LONGEST_HOST = 253  # characters that DNS allows
MOST_SITES = 100  # per text; each is searched in all untrusted text


def links(text: str) -> tuple[str, ...]:
    """Return the links of a text in order, without duplicates."""
    found = (match.rstrip(_TAIL) for match in _LINK.findall(text))
    return tuple(dict.fromkeys(link for link in found if link and not _is_file(link)))


def links_from(text: str, outside: str) -> tuple[str, ...]:
    """Return the links whose site the outside text names.

    Only the last two labels of the host are compared: the rest of a link is where an attacked model would
    hide the data that it leaks. If the text links to more than MOST_SITES sites, all links are returned.
    """
    if not outside.strip():
        return ()
    sites = {link: _site(host) for link in links(text) if (host := _host(link))}
    if len(set(sites.values())) > MOST_SITES:
        return tuple(sites)
    named = _plain(outside)
    found = {site for site in set(sites.values()) if site in named}
    return tuple(link for link, site in sites.items() if site in found)


def links_beyond(text: str, own: str) -> tuple[str, ...]:
    """Return the links whose host, and every parent domain of it, is absent from the owner's text."""
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
    """Return the last two labels of a host, or a numeric address as it is."""
    labels = host.split(".")
    return host if labels[-1].isdigit() else ".".join(labels[-2:])


def _within(host: str) -> Iterator[str]:
    labels = host.split(".")
    yield host
    for first in range(1, len(labels) - 1):
        yield ".".join(labels[first:])


def _plain(text: str) -> str:
    """Normalize text to compare hosts: case, Unicode form, invisible characters and punycode."""
    if not text.isascii():
        text = "".join(char for char in text if unicodedata.category(char) != "Cf")
        text = unicodedata.normalize("NFKC", text).translate(_DOTS)
    return _PUNYCODE.sub(_decoded, text.casefold())


def _decoded(label: re.Match[str]) -> str:
    try:
        return label[1].encode().decode("punycode").casefold()
    except UnicodeError:
        return label[0]
