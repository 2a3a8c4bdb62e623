"""The email module: lets a butler search and read mailboxes. Only the Messenger keeps the tools that send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from butlers.channels.email.config import InboundAccounts
from butlers.channels.email.tools import TOOLS, EmailAccounts
from butlers.db.database import Database
from butlers.domain.errors import ConfigInvalid
from butlers.domain.json_safe import FrozenDict
from butlers.modules.base import CredentialNeed, CredentialSource, Module, ModuleConfig, ToolMeta
from butlers.secrets.credentials import CredentialMissing
from butlers.tools.declaration import ToolFunction

EGRESS = ToolMeta({"to": True, "body": True}, egress=True)


class EmailModuleConfig(ModuleConfig):
    mailboxes: InboundAccounts = FrozenDict()
    """Mailboxes that the butler may read, as in `[connectors.email.NAME]`."""


class EmailModule(Module, EmailAccounts):
    name = "email"
    config_schema = EmailModuleConfig
    tools: ClassVar[tuple[ToolFunction, ...]] = TOOLS

    def __init__(self) -> None:
        self._store: CredentialSource | None = None

    def credentials(self) -> Sequence[CredentialNeed]:
        return [CredentialNeed(one.secret) for one in self.config.mailboxes.values()]

    async def on_startup(
        self, config: Any, db: Database, credential_store: CredentialSource | None = None
    ) -> None:
        self._store = credential_store
        EmailAccounts.__init__(self, config.mailboxes, self._secret)

    def tool_metadata(self) -> dict[str, ToolMeta]:
        return {"email_send_message": EGRESS, "email_reply_to_thread": EGRESS}

    async def _secret(self, name: str) -> str:
        if self._store is None:
            raise ConfigInvalid("the module has no credential store")
        found = await self._store.resolve(name)
        if found is None:
            raise CredentialMissing(f"the credential {name} is not set")
        return found
