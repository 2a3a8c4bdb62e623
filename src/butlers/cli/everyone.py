"""Asking every butler at once: what they answer, who did not, and which of them knows a thing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

import typer

from butlers.domain.errors import ButlersError, NotFound, PeerUnavailable

T = TypeVar("T")
WHY = "`butlers status` shows how each of them is"


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    found: Mapping[str, T]  # by butler
    failed: Mapping[str, ButlersError]

    def tell_failures(self) -> None:
        """To be called when what there is has been shown: a part that is missing is no success."""
        for name, error in self.failed.items():
            typer.echo(f"{name} did not answer: {error}", err=True)
        if self.failed:
            typer.echo(f"hint: {WHY}", err=True)
            raise typer.Exit(1)


async def ask_all(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """What each answers. One that does not keeps nobody from seeing the others; none at all is an error."""
    answers = await _gather(names, ask)
    if not answers.found:
        reasons = "; ".join(f"{name}: {error}" for name, error in answers.failed.items())
        raise PeerUnavailable(f"no butler answered ({reasons})", hint=WHY)
    return answers


async def ask_who_knows(
    names: Sequence[str], ask: Callable[[str], Awaitable[T]], what: str, hint: str
) -> tuple[str, T]:
    """The butler that knows a thing, and its answer; the others say that they have no such thing."""
    answers = await _gather(names, ask)
    for name, answer in answers.found.items():
        return name, answer
    silent = [name for name, error in answers.failed.items() if not isinstance(error, NotFound)]
    if silent:
        raise PeerUnavailable(
            f"{what} is not with the butlers that answered; {', '.join(silent)} did not", hint=WHY
        )
    raise NotFound(f"no butler has {what}", hint=hint)


async def _gather(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
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
    return Answers(found, failed)


def whole_id(text: str) -> str | None:
    """The id, when this is all of one and not its beginning."""
    try:
        return str(UUID(text))
    except ValueError:
        return None
