"""Answers of several butlers to one question: those that came, and the failures of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from butlers.domain.errors import ButlersError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GatheredAnswers(Generic[T]):
    found: Mapping[str, T]  # by butler
    failed: Mapping[str, ButlersError]


async def gather_answers(
    names: Sequence[str], ask: Callable[[str], Awaitable[T]]
) -> GatheredAnswers[T]:
    """Ask every butler at once. A butler that cannot answer stands among the failures."""
    answers = await asyncio.gather(*(ask(name) for name in names), return_exceptions=True)
    found: dict[str, T] = {}
    failed: dict[str, ButlersError] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, ButlersError):
            failed[name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
    return GatheredAnswers(found, failed)
