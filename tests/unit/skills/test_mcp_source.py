"""Skills from an MCP server: verified file by file, and refused when they are not what was listed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

from butlers.domain.errors import InvalidArguments, SkillFetchFailed
from butlers.skills.install.install import RegistryInstaller
from butlers.skills.install.mcp_source import McpSource, ServerSource, mcp_source
from butlers.skills.install.source import open_source
from butlers.skills.registry.catalog import RegisteredSkill
from butlers.skills.registry.registry import SkillRegistry
from support.mcp_server import served
from support.skills import write_files, write_skill_md


def offering(root: Path) -> FastMCP:
    """Return a server that offers the skills of the folder."""
    provider = SkillsDirectoryProvider(roots=root, experimental_skills=True)
    mcp = FastMCP("far")
    mcp.add_provider(provider)
    mcp.add_extension(SkillsExtension(providers=[provider]))
    return mcp


def offered(root: Path) -> Path:
    folder = write_skill_md(root / "pdf", "name: pdf\ndescription: Reads documents.\n")
    write_files(folder, {"scripts/read.py": "print(1)\n", "assets/a.bin": b"\x00\xff"})
    write_skill_md(root / "ocr", "name: ocr\ndescription: Reads pictures.\n")
    return root


async def test_skill_of_a_server_is_installed_with_its_origin(tmp_path: Path) -> None:
    registry = SkillRegistry(tmp_path / "home")

    def install(url: str) -> RegisteredSkill:
        with open_source(McpSource(url)) as opened:
            found = opened.collection()
            assert [skill.name for skill in found.skills] == ["ocr", "pdf"]
            (pdf,) = found.choose(["pdf"])
            installer = RegistryInstaller(registry, "person")
            return installer.install_one(opened, pdf, lambda _offer: True)

    async with served(offering(offered(tmp_path / "far"))) as url:
        installed = await asyncio.to_thread(install, url)
    place = registry.path("pdf", installed.latest)
    assert (place / "assets/a.bin").read_bytes() == b"\x00\xff"
    assert installed.release(None).origin == f"mcp+{url}#pdf"


async def test_file_that_changed_after_the_list_is_refused(tmp_path: Path) -> None:
    root = offered(tmp_path / "far")

    def fetch(url: str) -> None:
        source = ServerSource(McpSource(url), tmp_path / "scratch")
        source.collection()
        (root / "pdf" / "scripts" / "read.py").write_text("print(2)\n")
        source.folder("pdf")

    async with served(offering(root)) as url:
        with pytest.raises(SkillFetchFailed):
            await asyncio.to_thread(fetch, url)


async def test_server_without_skills_and_unreachable_server_are_errors(tmp_path: Path) -> None:
    def listed(url: str) -> None:
        ServerSource(McpSource(url), tmp_path).collection()

    async with served(FastMCP("plain")) as url:
        with pytest.raises(SkillFetchFailed, match="Skills extension"):
            await asyncio.to_thread(listed, url)
    with pytest.raises(SkillFetchFailed):
        await asyncio.to_thread(listed, "http://127.0.0.1:1/mcp")


def test_only_https_addresses_or_this_machine_are_accepted() -> None:
    assert mcp_source("https://host/mcp") is None
    assert mcp_source("mcp+https://me:secret@host/mcp?k=1") == McpSource(
        "https://me:secret@host/mcp?k=1"
    )
    assert McpSource("https://me:secret@host/mcp?k=1").origin == "mcp+https://host/mcp"
    for wrong in ("mcp+http://host/mcp", "mcp+file:///etc", "mcp+"):
        with pytest.raises(InvalidArguments):
            mcp_source(wrong)
