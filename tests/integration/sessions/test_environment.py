"""The environment of a session's process, reported by the process itself."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import MappingProxyType

import pytest

from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.redaction import SecretText
from butlers.domain.session import SessionRequest
from butlers.runtimes.claude_code.command import CONFINED_SWITCHES, SWITCHES
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context

PLANTED = {f"HOST_SECRET_{number}": "planted" for number in range(50)}
HOST = {
    **PLANTED,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/somebody",
    "LD_LIBRARY_PATH": "/planted",
    "DATABASE_URL": "postgresql://planted",
    "BUTLERS_MASTER_KEY": "planted",
    "ANTHROPIC_API_KEY": "key-a",
    "OPENAI_API_KEY": "key-o",
    "GEMINI_API_KEY": "key-g",
    "DECLARED": "yes",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
}
ALWAYS = {"PATH", "MCP_SERVERS", "TRACEPARENT", "HOME", "TMPDIR", *SWITCHES, *CONFINED_SWITCHES}
OF_THE_SYSTEM = {"PWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"}  # a shell's or the system's own
# Told on stderr, as its sandbox leaves it no file that we see; encoded, so that nothing in it is redacted.
TELLING = "#!/bin/sh\n{ pwd -P; env -0; } | base64 >&2\n"


@pytest.fixture
async def tester(make_butler: MakeButler, tmp_path: Path) -> InProcessButler:
    """Its CLI is a program that tells what it was given, and leaves."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "claude"
    program.write_text(TELLING)
    program.chmod(0o755)
    made = make_butler(
        extra='[runtime]\ntype = "claude-code"\n[butler.env]\nrequired = ["DECLARED"]\n'
        'optional = ["ANTHROPIC_BASE_URL", "ABSENT"]\n'
    )
    environ = {**HOST, "PATH": f"{programs}:{HOST['PATH']}"}
    butler = made.make(settings=Settings(made.home, environ=MappingProxyType(environ)))
    await butler.start()
    return made


async def seen(tester: InProcessButler, session: SessionRequest) -> dict[str, str]:
    result = await tester.butler.spawner.run(session)
    assert result.exit is not None
    told = base64.b64decode("".join(result.exit.stderr.split()), validate=True).decode()
    cwd, _, variables = told.partition("\n")
    assert cwd == str(tester.directory)
    found = dict(one.split("=", 1) for one in variables.split("\0") if one)
    assert not set(found) & set(PLANTED)
    assert "planted" not in json.dumps(found)
    assert found["HOME"].startswith(str(tester.home / "sessions"))
    assert found["TMPDIR"].startswith(str(tester.home / "sessions"))
    (server,) = json.loads(found["MCP_SERVERS"])["mcpServers"].values()
    assert server["url"] == f"{tester.butler.url}?runtime_session_id={session.session_id}"
    return {name: value for name, value in found.items() if name not in OF_THE_SYSTEM}


@pytest.mark.scenario("S001-30")
@pytest.mark.scenario("S001-55")
async def test_triggered_session_has_declared_variables_and_core_keys(
    tester: InProcessButler,
) -> None:
    found = await seen(tester, SessionRequest(uuid7(), "look", "trigger"))
    assert set(found) == ALWAYS | {
        "CLAUDE_ENV_FILE",  # of the CLI, where it has a shell
        "DECLARED",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
    }
    assert (found["DECLARED"], found["OPENAI_API_KEY"]) == ("yes", "key-o")


async def test_sealed_session_of_a_message_has_only_its_clis_variables(
    tester: InProcessButler,
) -> None:
    request = request_context()
    session = SessionRequest(uuid7(), "look", "route", request, request.request_id)
    found = await seen(tester, session)
    assert set(found) == ALWAYS | {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"}


async def test_stored_secret_wins_over_the_environment(
    tester: InProcessButler,
) -> None:
    vault = Vault(
        tester.provisioner,
        MasterKey.load(tester.butler.settings),
        {"tester": tester.butler.config.db.name},
    )
    await vault.put([NewSecret("tester", "DECLARED", SecretText("from the store"), None, None)])
    found = await seen(tester, SessionRequest(uuid7(), "look", "trigger"))
    assert found["DECLARED"] == "from the store"
