"""What a session's process has in its environment: PATH, what the configuration declares, and no more.

A session that reads text from outside and is sealed gets even less: only what its own CLI can not do
without, so that there is nothing else in it to be talked out of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from butlers.config.butler import ButlerConfig
from butlers.domain.session import Access
from butlers.domain.trace import traceparent_environment
from butlers.runtimes.base import MCP_SERVERS, McpServer
from butlers.runtimes.needs import CORE_KEYS, NEEDS

PATH = "/usr/local/bin:/usr/bin:/bin"  # where the host has none


class Credentials(Protocol):
    async def resolve(self, name: str, *, env: str | None = None) -> str | None: ...


class SessionEnvironment:
    def __init__(
        self,
        config: ButlerConfig,
        credentials: Credentials,
        environ: Mapping[str, str],
        module_credentials: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._credentials = credentials
        self._path = environ.get("PATH") or PATH
        declared = (*config.env.required, *config.env.optional)
        # The variable, and the name under which the credential store may have it.
        self._declared = {name: name for name in declared} | dict(module_credentials)

    async def build(
        self, runtime: str, servers: Mapping[str, McpServer], *, access: Access, outside: bool
    ) -> dict[str, str]:
        """``outside``: the session reads what somebody else wrote."""
        variables = await self.variables(runtime, access=access, outside=outside)
        return {**variables, MCP_SERVERS: describe(servers), **traceparent_environment()}

    async def variables(self, runtime: str, *, access: Access, outside: bool) -> dict[str, str]:
        """What does not depend on which session it is."""
        variables = {"PATH": self._path}
        for variable, name in self._granted(runtime, access, outside=outside).items():
            value = await self._credentials.resolve(name, env=variable)
            if value:
                variables[variable] = value
        return variables

    def _granted(self, runtime: str, access: Access, *, outside: bool) -> dict[str, str]:
        needs = NEEDS.get(runtime)
        own = dict.fromkeys(needs.credentials) if needs else {}
        if outside and access is Access.SEALED:
            settings = needs.settings if needs else ()
            declared = {name: self._declared[name] for name in settings if name in self._declared}
        else:
            declared = self._declared
            own |= dict.fromkeys(CORE_KEYS)
        return {name: name for name in own} | declared


def describe(servers: Mapping[str, McpServer]) -> str:
    """The session's MCP configuration, as the CLIs write it."""
    return json.dumps(
        {
            "mcpServers": {
                name: {
                    "type": "http",
                    "url": server.url,
                    "headers": {"Authorization": f"Bearer {server.token}"},
                }
                for name, server in servers.items()
            }
        }
    )
