"""Asserts that a butler whose start failed serves nothing."""

from __future__ import annotations

import httpx

from butlers.daemon.butler import Butler
from butlers.domain.caller import CallerKind


async def assert_not_served(butler: Butler) -> None:
    """No modules wired, no tools, no notice in the directory. The port may still say why."""
    for later in ("listener", "spawner", "mcp", "peers"):
        assert not hasattr(butler, later)
    name = butler.config.name
    headers = {
        "Authorization": f"Bearer {butler.key.mint(CallerKind.OWNER, 'tests', name)}",
        "Accept": "application/json, text/event-stream",
    }
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        try:
            answer = await http.post(butler.url, json=listing, headers=headers)
        except httpx.ConnectError:
            pass  # nobody listens
        else:
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert "result" not in answer.json()
    assert not (butler.home / "run" / f"{name}.json").exists()
