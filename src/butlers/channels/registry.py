"""Finds the channels and validates their configuration.

A channel comes from a folder of this package, from an entry point of the group ``butlers.channels`` or from
a folder ``$BUTLERS_HOME/channels/<name>/``. One that cannot be loaded is reported and left out; the others
work without it.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from pydantic import Field, create_model

from butlers.channels.base import (
    Channel,
    ChannelCheck,
    ChannelSender,
    InboundContext,
    OutboundContext,
    ReplyContext,
    RequestHandler,
)
from butlers.config.butler import ButlerConfig
from butlers.config.values import ConfigTable
from butlers.domain.errors import ButlersError, ConfigInvalid
from butlers.domain.message import PolicyTier

log = structlog.get_logger()

SHIPPED = Path(__file__).parent
PACKAGE = __name__.rpartition(".")[0]
ENTRY_POINTS = "butlers.channels"
FILE = "channel.py"
OUTBOUND, INBOUND = "channels", "connectors"  # tables of butler.toml

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class ChannelSet:
    """The channels of one installation, by name, and the errors of those that cannot be loaded."""

    channels: Mapping[str, Channel]
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.channels)

    def normalize_address(self, channel: str, identity: str) -> str:
        """Return the form under which an address of a channel is stored."""
        known = self.channels.get(channel)
        return known.normalize_address(identity) if known else identity.strip()

    def shows_reactions(self, channel: str) -> bool:
        known = self.channels.get(channel)
        return known is not None and known.shows_reactions

    def threads_are_topics(self, channel: str) -> bool:
        known = self.channels.get(channel)
        return known is not None and known.threads_are_topics

    def tier_of_known(self, channel: str, tier: PolicyTier) -> PolicyTier:
        """Return the tier of a message of a known sender, which its connector has put in this one."""
        known = self.channels.get(channel)
        raised = known.known_tier if known and tier is PolicyTier.INTERACTIVE else None
        return raised or tier

    def reply_context(self, channel: str, raw: Mapping[str, Any] | None) -> ReplyContext:
        known = self.channels.get(channel)
        return known.reply_context(raw or {}) if known else ReplyContext()

    def outbound(self, config: ButlerConfig) -> dict[Channel, Any]:
        """Return the channels that the Messenger sends over, each with its configuration."""
        found = self._validate(config, OUTBOUND, config.channels, lambda one: one.outbound_config)
        always = {name for name, channel in self.channels.items() if channel.always_on}
        return {self.channels[name]: found.get(name) for name in sorted({*found, *always})}

    def inbound(self, config: ButlerConfig) -> dict[Channel, Any]:
        """Return the channels that bring messages to the Switchboard, each with its configuration."""
        found = self._validate(config, INBOUND, config.connectors, lambda one: one.inbound_config)
        return {self.channels[name]: section for name, section in found.items()}

    def _validate(
        self,
        config: ButlerConfig,
        table: str,
        written: Mapping[str, Any],
        model_of: Callable[[Channel], Any],
    ) -> dict[str, Any]:
        """Return the validated sections of a table. An error names file, line and key."""
        if not written:
            return {}
        models = {name: model_of(channel) for name, channel in self.channels.items()}
        known = {name: model for name, model in models.items() if model is not None}
        # A section of a channel that cannot be loaded is not an unknown key.
        known |= dict.fromkeys(self.broken, Any)
        fields: dict[str, Any] = {
            f"channel_{number}": (model | None, Field(default=None, alias=name))
            for number, (name, model) in enumerate(known.items())
        }
        tables = create_model("ChannelTables", __base__=ConfigTable, **fields)
        file = create_model("File", __base__=ConfigTable, **{table: (tables, ...)})  # type: ignore[call-overload]
        sections = getattr(config.document({table: written}).validate(file), table)
        return {
            name: getattr(sections, f"channel_{number}")
            for number, name in enumerate(known)
            if name in written and name in self.channels
        }


def load_channels(home: Path) -> ChannelSet:
    """Load every channel. The first of a name wins: shipped, entry point, folder under ``home``."""
    channels: dict[str, Channel] = {}
    broken: dict[str, str] = {}
    for name, load in _sources(home):
        try:
            if name in channels:
                raise ConfigInvalid("there is another channel of that name", hint="rename it")
            channels[name] = _checked(name, load())
        except Exception as error:  # noqa: BLE001  (code from outside this package)
            reason = str(error) if isinstance(error, ButlersError) else repr(error)
            broken.setdefault(name, reason)
            log.error("channel cannot be loaded", channel=name, error=reason)
    return ChannelSet(channels, {name: why for name, why in broken.items() if name not in channels})


def build_senders(
    channels: Mapping[Channel, Any], context: OutboundContext
) -> dict[Channel, ChannelSender]:
    """Build the sender of each channel. One that cannot be built is logged and left out."""
    senders: dict[Channel, ChannelSender] = {}
    for channel, config in channels.items():
        try:
            senders[channel] = channel.sender(config, context)
        except Exception:  # code from outside this package
            log.exception("channel cannot send", channel=channel.name)
    return senders


def build_routes(
    channels: Mapping[Channel, Any], context: InboundContext
) -> dict[str, RequestHandler]:
    """Return the HTTP handlers of the channels by path. A channel that fails is left out."""
    routes: dict[str, RequestHandler] = {}
    for channel, config in channels.items():
        try:
            routes |= channel.routes(config, context)
        except Exception:  # code from outside this package
            log.exception("channel has no routes", channel=channel.name)
    return routes


async def run_connector(channel: Channel, config: Any, context: InboundContext) -> None:
    """Run a channel's connector. A connector that crashes is logged and stops alone."""
    try:
        await channel.run_connector(config, context)
    except Exception:  # code from outside this package
        log.exception("connector stopped", channel=channel.name)


def channel_checks(
    home: Path,
    secrets: Collection[str] | None,
    *,
    messenger: ButlerConfig | None = None,
    switchboard: ButlerConfig | None = None,
) -> list[ChannelCheck]:
    """Return the lines of every channel for ``butlers doctor``."""
    found = load_channels(home)
    checks = [
        ChannelCheck(name, "broken", why, f"correct {FILE}, or remove the channel")
        for name, why in found.broken.items()
    ]
    try:
        outbound = found.outbound(messenger) if messenger else {}
        inbound = found.inbound(switchboard) if switchboard else {}
    except ConfigInvalid as error:
        return [*checks, ChannelCheck("channels", "broken", str(error), error.hint)]
    for channel in found.channels.values():
        try:
            checks += channel.check(outbound.get(channel), inbound.get(channel), secrets)
        except Exception as error:  # noqa: BLE001  (code from outside this package)
            checks.append(ChannelCheck(channel.name, "broken", repr(error), f"correct {FILE}"))
    return checks


def _sources(home: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    for path in sorted(SHIPPED.glob(f"*/{FILE}")):
        yield path.parent.name, partial(_import_channel, f"{PACKAGE}.{path.parent.name}")
    for entry in _entry_points():
        yield entry.name, entry.load
    for path in sorted((home / "channels").glob(f"*/{FILE}")):
        yield path.parent.name, partial(_import_folder, path.parent)


@cache
def _entry_points() -> EntryPoints:
    return entry_points(group=ENTRY_POINTS)  # reads the metadata of every installed package


def _import_channel(package: str) -> Any:
    return importlib.import_module(f"{package}.channel").CHANNEL


def _import_folder(folder: Path) -> Any:
    """Import a channel from outside this package under a private package name."""
    package = f"butlers_channel_{folder.name.replace('-', '_')}"
    if getattr(sys.modules.get(package), "__path__", None) != [str(folder)]:
        for name in [one for one in sys.modules if f"{one}.".startswith(f"{package}.")]:
            del sys.modules[name]
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(folder)]
    return _import_channel(package)


def _checked(name: str, channel: Any) -> Channel:
    if not isinstance(channel, Channel):
        raise ConfigInvalid(
            f"CHANNEL is a {type(channel).__name__}", hint="it has to be an instance of a Channel"
        )
    if not _NAME.fullmatch(name) or channel.name != name:
        raise ConfigInvalid(
            f"the channel is named {channel.name!r} and stands under {name!r}",
            hint="use one name: lower-case letters, digits, '-' and '_', a letter first",
        )
    return channel
