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
from butlers.db.database import Connection
from butlers.domain.caller import EVERYONE, OWNER_ONLY, PEERS, SESSIONS, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.module import BriefPart
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.base import CredentialNeed, Module, ModuleConfig, ToolMeta, ToolRegistrar
from butlers.modules.contacts.addresses import comparable
from butlers.modules.contacts.book import (
    SOURCE_PREFIX,
    Address,
    ContactBook,
    KnownPerson,
    contact_address,
)
from butlers.modules.contacts.card import CardChange, ContactCard, ContactWay
from butlers.modules.registry import load_module
from butlers.modules.testing import module_context
from butlers.scheduling.jobs import JobContext
from butlers.tools.amounts import (
    CurrencyCode,
    Money,
    MoneyText,
    format_amount,
    read_currency,
    read_money,
    read_positive_money,
    read_ratio,
    round_to_minor,
)
from butlers.tools.context import CallContext, require_trusted_input
from butlers.tools.dates import Day, Period, PeriodText, When, read_day, read_period, read_when
from butlers.tools.declaration import Effect, tool
from butlers.tools.entries import (
    EntryChanges,
    EntryQuery,
    EntryRow,
    RecordKind,
    change_entry,
    delete_entry,
    find_entries,
)
from butlers.tools.peers import ask_peer
from butlers.tools.records import begin_import, shown_source
from butlers.tools.recurrence import RepeatText, anchored, next_date, next_instant, read_repeat

__all__ = [
    "EVERYONE",
    "OWNER_ONLY",
    "PEERS",
    "SESSIONS",
    "SOURCE_PREFIX",
    "Address",
    "BriefPart",
    "CallContext",
    "CallerKind",
    "CardChange",
    "Channel",
    "ChannelCheck",
    "ChannelConfig",
    "ChannelSender",
    "Connection",
    "ContactBook",
    "ContactCard",
    "ContactWay",
    "CredentialNeed",
    "CurrencyCode",
    "Day",
    "Effect",
    "EntryChanges",
    "EntryQuery",
    "EntryRow",
    "InboundContext",
    "JobContext",
    "KnownPerson",
    "Module",
    "ModuleConfig",
    "Money",
    "MoneyText",
    "OutboundContext",
    "Period",
    "PeriodText",
    "PolledMessage",
    "PollingConnector",
    "Provenance",
    "RecordKind",
    "RepeatText",
    "RequestHandler",
    "ToolMeta",
    "ToolRegistrar",
    "Trust",
    "When",
    "anchored",
    "ask_peer",
    "begin_import",
    "change_entry",
    "comparable",
    "contact_address",
    "delete_entry",
    "find_entries",
    "format_amount",
    "load_module",
    "module_context",
    "next_date",
    "next_instant",
    "read_body",
    "read_currency",
    "read_day",
    "read_money",
    "read_period",
    "read_positive_money",
    "read_ratio",
    "read_repeat",
    "read_when",
    "require_trusted_input",
    "round_to_minor",
    "shown_source",
    "tool",
    "uuid7",
]
