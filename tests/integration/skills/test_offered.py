"""A butler's skills over MCP: the owner's clients install them, sessions and peers see nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.skills import SkillsClientExtension
from mcp import MCPError

from butlers.cli.skills_install import SkillChoice, install_from, signed_in
from butlers.config.files import write_once
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import NotAuthenticated, NotFound, SkillFetchFailed
from butlers.domain.session import SessionRequest
from butlers.skills.install.install import RegistryInstaller
from butlers.skills.install.mcp_source import McpSource
from butlers.skills.registry.registry import SkillRegistry
from butlers.wire.directory import announce
from butlers.wire.tokens import FleetKey
from support.in_process import InProcessButler, MakeButler
from support.skills import write_files, write_skill_md

SECRET = "sk-" + "a1b2c3d4" * 4


@pytest.fixture
async def offering(make_pack_butler: MakeButler, tmp_path: Path) -> InProcessButler:
    """A butler with two skills to offer, and others that must stay at home."""
    tester = make_pack_butler("stock@1.0.0")
    tester.register(
        "stock",
        {"SKILL.md": "---\nname: stock\ndescription: Counts.\n---\nCount.\n"},
        description="Counts.",
    )
    write_files(
        tester.own("pdf"),
        {
            "scripts/read file.py": "print('ä')\r\n",
            "assets/a.bin": b"\x00\xff",
            ".env": f"KEY={SECRET}\n",
            ".ssh/id": "private\n",
            ".env.example": "KEY=\n",
        },
    )
    outside = write_files(tmp_path / "outside", {"key.txt": "private\n"})
    (tester.own("linked") / "key.txt").symlink_to(outside / "key.txt")
    (tester.own("linked-folder") / "more").symlink_to(outside)
    write_files(tester.own("careless"), {"notes.md": f"use {SECRET}\n"})
    write_files(tester.own("large"), {f"data/{number}.txt": "x" for number in range(513)})
    shared = write_skill_md(
        tester.directory.parent / "shared/skills/borrowed",
        "name: borrowed\ndescription: A link.\n",
    )
    (tester.directory / "skills" / "borrowed").symlink_to(shared)
    keys = tester.home / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    write_once(keys / "fleet.key", tester.key.secret)
    await tester.start()
    return tester


@asynccontextmanager
async def connected(tester: InProcessButler, token: str) -> AsyncIterator[Client]:
    transport = StreamableHttpTransport(tester.butler.url, auth=token)
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        yield client


async def test_another_fleet_installs_the_skills_of_a_butler(
    offering: InProcessButler, tmp_path: Path
) -> None:
    registry = SkillRegistry(tmp_path / "other-home")
    url, home = offering.butler.url, offering.home
    installer = RegistryInstaller(registry, "person")

    def install() -> bool:
        address = signed_in(McpSource(url), home, registry.home)
        return install_from(installer, address, SkillChoice(everything=True, yes=True))

    assert await asyncio.to_thread(install)

    assert sorted(registry.catalog().skills) == ["pdf", "stock"]
    pdf = registry.get("pdf")
    copy, original = registry.path("pdf", pdf.latest), offering.directory / "skills" / "pdf"
    for path in ("SKILL.md", "scripts/read file.py", "assets/a.bin", ".env.example"):
        assert (copy / path).read_bytes() == (original / path).read_bytes()
    assert not (copy / ".env").exists()
    assert not (copy / ".ssh").exists()
    assert pdf.release(None).origin == f"mcp+{url}#pdf"


async def test_owner_gets_nothing_but_the_listed_files(offering: InProcessButler) -> None:
    async with connected(offering, offering.owner_token) as client:
        listed = await client.list_skills()
        assert [skill.uri for skill in listed] == ["skill://pdf/SKILL.md", "skill://stock/SKILL.md"]
        assert await client.get_skill("skill://pdf/SKILL.md") == listed[0]
        resources = [str(resource.uri) for resource in await client.list_resources()]
        assert sorted(resources) == ["skill://pdf/SKILL.md", "skill://stock/SKILL.md"]
        for refused in (
            "skill://pdf/.env",
            "skill://pdf/.ssh/id",
            "skill://pdf/../linked/SKILL.md",
            "skill://pdf/%2E%2E/%2E%2E/butler.toml",
            "skill://pdf//etc/passwd",
            "skill://pdf/scripts",
            "skill://linked/key.txt",
            "skill://linked/SKILL.md",
            "skill://linked-folder/more/key.txt",
            "skill://borrowed/SKILL.md",
            "skill://careless/notes.md",
            "skill://large/SKILL.md",
            "skill://custom/SKILL.md",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(refused)
        with pytest.raises(MCPError):
            await client.get_skill("skill://linked/SKILL.md")


async def test_changed_pack_and_link_put_in_later_are_not_served(
    offering: InProcessButler, tmp_path: Path
) -> None:
    offering.tamper("stock", "SKILL.md")
    (offering.directory / "skills/pdf/assets/later").symlink_to(tmp_path)
    async with connected(offering, offering.owner_token) as client:
        assert await client.list_skills() == []
        for uri in ("skill://stock/SKILL.md", "skill://pdf/SKILL.md"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_sessions_lent_tokens_and_peers_see_no_skill(offering: InProcessButler) -> None:
    butler = offering.butler
    asked = SessionRequest(session_id=uuid7(), prompt="test", trigger_source="test")
    with butler.guard.admit(asked) as session:
        owner, _none = butler.tokens.identify(offering.owner_token)
        with butler.guard.lend(owner, None, frozenset({"status"}), 60) as lent:
            for token in (session, lent, offering.token(CallerKind.PEER, "switchboard")):
                async with connected(offering, token) as client:
                    assert await client.list_skills() == []
                    assert await client.list_resources() == []
                    assert await client.list_resource_templates() == []
                    with pytest.raises(MCPError):
                        await client.get_skill("skill://pdf/SKILL.md")
                    with pytest.raises(MCPError):
                        await client.read_resource("skill://pdf/SKILL.md")


async def test_without_the_fleets_key_nothing_is_offered(
    offering: InProcessButler, tmp_path: Path
) -> None:
    source, registry = McpSource(offering.butler.url), SkillRegistry(tmp_path / "other-home")
    installer = RegistryInstaller(registry, "person")
    with pytest.raises(SkillFetchFailed):
        await asyncio.to_thread(install_from, installer, source, SkillChoice(everything=True))
    with pytest.raises(NotFound):
        await asyncio.to_thread(signed_in, source, tmp_path / "nobody", registry.home)
    # A home that names the butler, but has another key, does not give its token away.
    forged = tmp_path / "forged"
    announce(forged, "tester", source.url)
    FleetKey.load(forged)
    with pytest.raises(NotAuthenticated):
        await asyncio.to_thread(signed_in, source, forged, registry.home)
