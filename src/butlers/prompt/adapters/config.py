"""How a prompt is evaluated: where, with which model, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

from butlers.runtimes.base import Limits


class Disclosure(StrEnum):
    """How the tools of a section that was opened reach the model."""

    WITHIN = "within"  # in the same run; where the CLI does not list its tools again, in a new one
    RESTART = "restart"  # always in a new run


@dataclass(slots=True, frozen=True)
class IsolationConfig:
    """The session's home holds nothing but what is put there; skills are installed into it."""

    install_skills: bool = True
    api_key: str | None = field(default=None, repr=False)  # None: the one of this process
    env: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # more variables for the session


@dataclass(slots=True, frozen=True)
class ClientConfig:
    """Without ``isolation`` nothing is installed: all skills are sections of the prompt."""

    isolation: IsolationConfig | None = None
    model: str | None = None
    cwd: Path | None = None  # a folder that the session may read
    executable: Path | None = None  # None: the one on PATH
    limits: Limits = field(default_factory=Limits)
    disclosure: Disclosure = Disclosure.WITHIN


@dataclass(slots=True, frozen=True)
class ClaudeAgentSDKClientConfig(ClientConfig):
    pass


@dataclass(slots=True, frozen=True)
class Budget:
    """What one evaluation may use. Tokens are counted when a run has ended."""

    max_cost_usd: Decimal | None = None
    max_turns: int | None = None
    max_total_tokens: int | None = None
