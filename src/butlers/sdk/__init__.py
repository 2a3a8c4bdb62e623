"""The one page of names that roster folders and other people's modules import."""

from butlers.domain.caller import EVERYONE, OWNER_ONLY, PEERS, SESSIONS, CallerKind
from butlers.domain.ids import uuid7
from butlers.modules.base import Module
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext

__all__ = [
    "EVERYONE",
    "OWNER_ONLY",
    "PEERS",
    "SESSIONS",
    "CallContext",
    "CallerKind",
    "Effect",
    "Module",
    "tool",
    "uuid7",
]
