"""Makes readable, inert text of an HTML mail: no scripts, no forms, nothing hidden, nothing fetched."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HTML = 2_000_000  # characters
MAX_TEXT = 200_000
MAX_NODES = 100_000

_DROPPED = frozenset(
    {"script", "style", "head", "title", "template", "noscript", "iframe", "object", "embed", "svg",
     "math", "form", "input", "button", "select", "textarea", "link", "meta", "base"}
)  # fmt: skip
_BLOCKS = frozenset(
    {"p", "div", "br", "li", "ul", "ol", "tr", "table", "h1", "h2", "h3", "h4", "h5", "h6", "hr",
     "blockquote", "pre", "section", "article", "header", "footer"}
)  # fmt: skip
_HIDDEN = ("display:none", "visibility:hidden", "font-size:0", "opacity:0", "mso-hide:all")


def html_to_text(html: str) -> str:
    """Return the visible text. Links keep their address, images only their description."""
    root = LexborHTMLParser(html[:MAX_HTML]).root
    parts: list[str] = []
    # A node to enter, or a text to add after its children.
    stack: list[LexborNode | str] = [root] if root is not None else []
    entered = size = 0
    while stack and entered < MAX_NODES and size < MAX_TEXT:
        top = stack.pop()
        entered += 1
        if isinstance(top, str):
            parts.append(top)
        else:
            parts.append(_enter(top, stack))
        size += len(parts[-1])
    return _tidy("".join(parts))


def _enter(node: LexborNode, stack: list[LexborNode | str]) -> str:
    """Return the text of a node itself, and put its children on the stack."""
    tag = node.tag or ""
    if tag == "-text":
        return " ".join((node.text_content or "").replace("\xa0", " ").split(" "))
    if tag in _DROPPED or (tag.startswith("-") and tag != "-undef") or _is_hidden(node):
        return ""
    if tag == "img":
        described = (node.attributes.get("alt") or "").strip()
        return f"[{described[:200]}]" if described else ""
    after = "\n" if tag in _BLOCKS else ""
    href = (node.attributes.get("href") or "").strip() if tag == "a" else ""
    if href.startswith(("http://", "https://", "mailto:")):
        after = f" <{href[:500]}>"
    if after:
        stack.append(after)
    children = list(node.iter(include_text=True))
    stack.extend(reversed(children))
    start = {"li": "\n- ", "td": " ", "th": " "}.get(tag, "")
    return start or ("\n" if tag in _BLOCKS else "")


def _is_hidden(node: LexborNode) -> bool:
    if "hidden" in node.attributes:
        return True
    style = (node.attributes.get("style") or "").lower()[:1000].replace(" ", "")
    return any(mark in style for mark in _HIDDEN)


def _tidy(text: str) -> str:
    """Return the text with at most one empty line between paragraphs."""
    lines: list[str] = []
    for line in text[:MAX_TEXT].splitlines():
        words = " ".join(line.split())
        if words or (lines and lines[-1]):
            lines.append(words)
    return "\n".join(lines).strip()
