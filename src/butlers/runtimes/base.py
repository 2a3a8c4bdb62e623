"""What every runtime is: something that turns a prompt into calls of one butler's tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from butlers.domain.request import RequestContext
from butlers.domain.session import SessionResult


@dataclass(frozen=True, slots=True)
class McpServer:
    """The one endpoint a session may reach, and the token that opens it."""

    url: str
    token: str = field(repr=False)


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        *,
        request: RequestContext | None,
    ) -> SessionResult: ...
