"""The environment of a session: declared variables, and nothing else of the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.domain.session import Access
from butlers.runtimes.base import McpServer
from butlers.sessions.workspace import SessionEnvironment

SERVERS = {"health": McpServer("http://127.0.0.1:40103/mcp?runtime_session_id=1", "the-token")}
HOST = {f"HOST_SECRET_{number}": "no" for number in range(50)} | {
    "PATH": "/opt/bin:/bin",
    "HOME": "/home/somebody",
    "AWS_SECRET_ACCESS_KEY": "no",
    "DATABASE_URL": "no",
    "BUTLERS_MASTER_KEY": "no",
    "ANTHROPIC_API_KEY": "sk-a",
    "OPENAI_API_KEY": "sk-o",
    "GEMINI_API_KEY": "g",
    "DECLARED": "yes",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
}


class Store:
    """A credential store that has one secret, and else looks where it is told."""

    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return "from the store" if name == "mail_password" else HOST.get(env or "")


@pytest.fixture
def config(tmp_path: Path) -> ButlerConfig:
    (tmp_path / "butler.toml").write_text(
        '[butler]\nname = "health"\nport = 40103\n[butler.env]\n'
        'required = ["DECLARED"]\noptional = ["ANTHROPIC_BASE_URL", "ABSENT"]\n'
    )
    return load_butler_config(tmp_path, Settings.from_environ({}))


async def build(
    config: ButlerConfig, runtime: str, access: Access, *, outside: bool = False
) -> dict[str, str]:
    environment = SessionEnvironment(config, Store(), HOST, [("MAIL_PASSWORD", "mail_password")])
    return await environment.build(runtime, SERVERS, access=access, outside=outside)


@pytest.mark.scenario("S001-30")
@pytest.mark.scenario("S001-55")
async def test_environment_has_path_declared_variables_and_core_keys(config: ButlerConfig) -> None:
    built = await build(config, "claude-code", Access.WORKSPACE)
    del built["MCP_SERVERS"]
    assert built == {
        "PATH": "/opt/bin:/bin",
        "DECLARED": "yes",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_API_KEY": "sk-a",
        "OPENAI_API_KEY": "sk-o",
        "MAIL_PASSWORD": "from the store",
    }


async def test_the_runtimes_own_key_is_there_too(config: ButlerConfig) -> None:
    assert (await build(config, "gemini", Access.WORKSPACE))["GEMINI_API_KEY"] == "g"


@pytest.mark.parametrize(
    ("runtime", "key"),
    [
        ("claude-code", "ANTHROPIC_API_KEY"),
        ("codex", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
    ],
)
async def test_a_sealed_session_of_a_message_has_only_what_its_cli_needs(
    config: ButlerConfig, runtime: str, key: str
) -> None:
    built = await build(config, runtime, Access.SEALED, outside=True)
    names = {"PATH", "MCP_SERVERS", key}
    assert set(built) == names | ({"ANTHROPIC_BASE_URL"} if runtime == "claude-code" else set())


async def test_declared_proxy_and_certificates_reach_a_sealed_session_too(tmp_path: Path) -> None:
    """A CLI behind a proxy answers messages as well, not only the owner's own triggers."""
    network = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost"}
    network["NODE_EXTRA_CA_CERTS"] = "/etc/authority.pem"
    declared = ", ".join(f'"{name}"' for name in (*network, "DECLARED"))
    (tmp_path / "butler.toml").write_text(
        f'[butler]\nname = "health"\nport = 40103\n[butler.env]\noptional = [{declared}]\n'
    )
    config = load_butler_config(tmp_path, Settings.from_environ({}))
    host = {**HOST, **network, "ALL_PROXY": "not declared"}

    class Host:
        async def resolve(self, name: str, *, env: str | None = None) -> str | None:
            return host.get(env or "")

    environment = SessionEnvironment(config, Host(), host)
    for runtime in ("claude-code", "codex", "gemini"):
        built = await environment.build(runtime, SERVERS, access=Access.SEALED, outside=True)
        assert {name: built.get(name) for name in network} == network
        assert "ALL_PROXY" not in built
        assert "DECLARED" not in built


@pytest.mark.scenario("S001-29")
async def test_environment_names_the_one_server(config: ButlerConfig) -> None:
    built = await build(config, "codex", Access.SEALED)
    assert json.loads(built["MCP_SERVERS"]) == {
        "mcpServers": {
            "health": {
                "type": "http",
                "url": "http://127.0.0.1:40103/mcp?runtime_session_id=1",
                "headers": {"Authorization": "Bearer the-token"},
            }
        }
    }
