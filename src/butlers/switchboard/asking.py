"""Ask every butler the same question at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from butlers.domain.errors import ButlersError
from butlers.domain.registration import Registration
from butlers.wire.client import Peers


@dataclass(frozen=True, slots=True)
class ButlerAnswers:
    """Answers by butler, and the errors of those that did not answer."""

    given: dict[str, Any]
    missing: dict[str, str]

    def with_missing(self, text: str) -> str:
        silent = ", ".join(sorted(self.missing))
        return f"{text} No answer from: {silent}." if silent else text


async def ask_butlers(
    peers: Peers, butlers: Sequence[Registration], tool: str, arguments: dict[str, Any]
) -> ButlerAnswers:
    found = await asyncio.gather(
        *(peers.call(one.name, one.url, tool, arguments) for one in butlers),
        return_exceptions=True,
    )
    given: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for one, answer in zip(butlers, found, strict=True):
        if isinstance(answer, ButlersError):
            missing[one.name] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            given[one.name] = answer
    return ButlerAnswers(given, missing)
