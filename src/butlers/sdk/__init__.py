"""The one page of names that roster folders and other people's modules import."""

from butlers.domain.caller import EVERYONE, OWNER_ONLY, PEERS, SESSIONS, CallerKind
from butlers.domain.ids import uuid7
from butlers.modules.base import CredentialNeed, Module, ModuleConfig, ToolMeta
from butlers.modules.registry import load_module
from butlers.modules.testing import module_context
from butlers.modules.tool_registrar import ToolRegistrar
from butlers.scheduling.jobs import JobContext
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext

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
