"""What one module offers: its tools, what is to be known of them, and which of them speak to the outside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass

from butlers.db.database import Database
from butlers.domain.errors import ConfigInvalid
from butlers.modules.base import Module, ToolMeta
from butlers.modules.tool_registrar import ToolRegistrar
from butlers.tools.base import ToolSpec, spec_of

# The names under which modules know sending; `bot_email_send_message` is not one of them.
EGRESS = re.compile(
    r"(?:console|discord|email|matrix|signal|slack|sms|telegram|whatsapp)"
    r"_(?:send_message|reply_to_message|reply_to_thread)"
)


@dataclass(frozen=True, slots=True)
class Offer:
    specs: tuple[ToolSpec, ...]
    metadata: Mapping[str, ToolMeta]

    @property
    def egress(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs if self._is_egress(spec))

    def _is_egress(self, spec: ToolSpec) -> bool:
        told = self.metadata.get(spec.name)
        return bool(told and told.egress) or any(
            EGRESS.fullmatch(name) for name in (spec.name, *spec.aliases)
        )


async def collect_offer(module: Module, db: Database) -> Offer:
    metadata = dict(module.tool_metadata())
    declared = frozenset({*metadata, *(spec_of(function).name for function in module.tools)})
    registrar = ToolRegistrar(module.name, declared)
    registering = module.register_tools(registrar, module.config, db)
    if registering is not None:
        await registering
    offer = Offer(registrar.specs, metadata)
    _check_metadata(module, offer)
    return offer


def _check_metadata(module: Module, offer: Offer) -> None:
    """A sensitivity that is noted under a wrong name would protect nothing."""
    takes = {spec.name: set(inspect.signature(spec.function).parameters) for spec in offer.specs}
    for tool, meta in offer.metadata.items():
        if tool not in takes:
            raise ConfigInvalid(
                f"tool_metadata() of the {module.name} module names {tool!r}, which it does not offer"
            )
        if unknown := sorted(set(meta.arg_sensitivities) - takes[tool]):
            raise ConfigInvalid(
                f"tool_metadata() of the {module.name} module: {tool} has no argument {unknown[0]!r}"
            )
