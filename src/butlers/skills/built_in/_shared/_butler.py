"""Call a tool of the butler that runs this script."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from _script import Refused

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol"
TIMEOUT_S = 60
URL, TOKEN = "BUTLERS_URL", "BUTLERS_TOKEN"  # set by the runner for built-in packs only


def call(tool: str, arguments: dict[str, Any]) -> Any:
    """Return the tool's result. Raise Refused with the butler's error message."""
    url, token = os.environ.get(URL), os.environ.get(TOKEN)
    if not url or not token:
        raise Refused("this script needs a butler: run it with the butler's skill_run tool")
    meta = {
        f"{META}/protocolVersion": PROTOCOL,
        f"{META}/clientInfo": {"name": "butlers-script", "version": "1"},
        f"{META}/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    return _result(_post(urllib.request.Request(url, json.dumps(body).encode(), headers)))


def _post(request: urllib.request.Request) -> dict[str, Any]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=TIMEOUT_S) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        raise Refused(f"the butler answered {error.code}") from error
    except OSError as error:
        raise Refused(f"the butler did not answer: {error}") from error
    events = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    found: dict[str, Any] = json.loads(events[-1] if events else text)
    return found


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise Refused(str(answer["error"].get("message", "the butler refused")))
    result = answer["result"]
    if result.get("isError"):
        texts = [str(part.get("text", "")) for part in result.get("content", [])]
        raise Refused(" ".join(texts) or "the butler refused")
    return result.get("structuredContent")
