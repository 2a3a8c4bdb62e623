"""Public names for roster folders and third-party modules."""

from butlers.domain.caller import EVERYONE, OWNER_ONLY, PEERS, SESSIONS, CallerKind
from butlers.domain.clock import uuid7
from butlers.modules.base import CredentialNeed, Module, ModuleConfig, ToolMeta, ToolRegistrar
from butlers.modules.registry import load_module
from butlers.modules.testing import module_context
from butlers.scheduling.jobs import JobContext
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

__all__ = [
    "EVERYONE",
    "OWNER_ONLY",
    "PEERS",
    "SESSIONS",
    "CallContext",
    "CallerKind",
    "CredentialNeed",
    "Effect",
    "JobContext",
    "Module",
    "ModuleConfig",
    "ToolMeta",
    "ToolRegistrar",
    "load_module",
    "module_context",
    "tool",
    "uuid7",
]
