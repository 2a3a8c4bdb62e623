"""Public names for roster folders and third-party modules and channels."""

from butlers.channels.base import (
    Channel,
    ChannelCheck,
    ChannelConfig,
    ChannelSender,
    InboundContext,
    OutboundContext,
    RequestHandler,
    read_body,
)
from butlers.channels.polling import PolledMessage, PollingConnector
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
    "Channel",
    "ChannelCheck",
    "ChannelConfig",
    "ChannelSender",
    "CredentialNeed",
    "Effect",
    "InboundContext",
    "JobContext",
    "Module",
    "ModuleConfig",
    "OutboundContext",
    "PolledMessage",
    "PollingConnector",
    "RequestHandler",
    "ToolMeta",
    "ToolRegistrar",
    "load_module",
    "module_context",
    "read_body",
    "tool",
    "uuid7",
]
