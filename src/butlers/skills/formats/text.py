"""The bytes of a stranger as text, and what had to be replaced for it."""

from __future__ import annotations

import codecs
import re

from butlers.config.locate import Place, place_of
from butlers.skills.findings import Findings

# Half of a character, as an escape can write it: no file, database or network takes such a text.
HALF = re.compile("[\ud800-\udfff]")
HALF_MESSAGE = "an escape is half of a character, and was replaced"


def whole(text: str) -> str:
    return HALF.sub("\ufffd", text)


def decode(content: bytes, findings: Findings) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        findings.add(
            "skill-encoding", "the file is UTF-16", at=Place(1, 1), hint="save it as UTF-8"
        )
        return content.decode("utf-16", "replace").removeprefix("\ufeff")
    if content.startswith(codecs.BOM_UTF8):
        findings.add("skill-bom", "the file begins with a byte order mark", at=Place(1, 1))
        content = content[len(codecs.BOM_UTF8) :]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        findings.add(
            "skill-encoding",
            f"byte {content[error.start]:#04x} is not UTF-8",
            at=place_of(before, len(before)),
            hint="save the file as UTF-8",
        )
        return content.decode("utf-8", "replace")
