"""basic-tools: every tool works, stays in the butler's folder and reaches public hosts only."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.session import Access
from butlers.skills.check.rules import check
from butlers.skills.registry.built_in import built_in_packs, register_built_in
from butlers.skills.registry.packs import copy_skill
from butlers.skills.scripts.answer import ScriptAnswer
from support import public_host
from support.scripts import Scripts

TOOLS = ("read-file", "write-file", "list-directory", "http-request", "run-command")


class Tools:
    """The registered pack, run as a session would run it."""

    def __init__(self, root: Path) -> None:
        self.scripts = Scripts(root)
        list(register_built_in(self.scripts.registry))
        self.pack = self.scripts.registered("basic-tools")
        self.work = self.scripts.work

    async def __call__(
        self, tool: str, access: Access = Access.SEALED, hosts: str = "", **arguments: Any
    ) -> ScriptAnswer:
        variables = {"HTTP_ALLOWED_HOSTS": hosts}
        return await self.scripts.run(self.pack, tool, arguments, variables, access=access)

    async def error(self, tool: str, **arguments: Any) -> str:
        answer = await self(tool, **arguments)
        assert not answer.success
        assert answer.exit_code == 1
        return answer.error or ""


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


@pytest.mark.scenario("S003-32")
async def test_basic_tools_has_its_five_tools_and_each_works(tools: Tools) -> None:
    assert [Path(script).stem for script in tools.pack.skill.scripts] == list(TOOLS)
    assert tools.pack.folder.parent == tools.scripts.home / "skills" / "built-in"
    assert (await tools("write-file", path="notes/a.md", content="# Grüße\n", parents=True)).success
    read = await tools("read-file", path="./notes/a.md")
    assert read.result == {
        "path": "notes/a.md", "size": 10, "truncated": False, "content": "# Grüße\n",
    }  # fmt: skip
    listed = await tools("list-directory", path="notes")
    assert listed.result["entries"] == [{"name": "a.md", "kind": "file", "size": 10}]
    ran = await tools("run-command", Access.FULL, command=["cat", "notes/a.md"])
    assert ran.result["stdout"] == "# Grüße\n"
    [answer] = public([{"url": "http://api.example.com/x?y=1"}])
    assert answer["result"]["status"] == 200
    assert json.loads(answer["result"]["body"])["path"] == "/x?y=1"


def test_every_built_in_pack_passes_the_check(tmp_path: Path) -> None:
    for folder in built_in_packs():
        copy = tmp_path / folder.name
        copy.mkdir()
        copy_skill(folder, copy, shared=(folder.parent / "_shared").resolve())
        assert check(copy).diagnostics == ()


def test_built_in_packs_are_registered_once_and_repaired(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    file = tools.pack.folder / "manifest.json"
    file.chmod(0o644)
    file.write_text("{}")
    [again, *_others] = register_built_in(tools.scripts.registry)
    assert again.versions == ("1.0.0",)
    assert tools.scripts.registry.path("basic-tools", "1.0.0") == tools.pack.folder


# -- files


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret", "leaves your own folder"),
        ("inner/../../secret", "leaves your own folder"),
        ("/etc/passwd", "is absolute"),
        (".env", "hidden"),
        ("inner/.git/config", "hidden"),
        ("out", "is a link"),
        ("outer/secret", "is a link"),
        ("pipe", "not a regular file"),
        ("same", "not a regular file"),
        ("inner", ""),
        ("", "must name a file"),
        ("nul\0", "must be text"),
    ],
)
async def test_no_path_leaves_the_butlers_folder(tools: Tools, path: str, reason: str) -> None:
    secret = tools.work.parent / "secret"
    secret.write_text("SECRET")
    (tools.work / ".env").write_text("SECRET")
    (tools.work / "inner").mkdir()
    (tools.work / "out").symlink_to(secret)
    (tools.work / "outer").symlink_to(tools.work.parent)
    (tools.work / "same").hardlink_to(secret)
    os.mkfifo(tools.work / "pipe")
    for tool in ("read-file", "write-file"):
        assert reason in await tools.error(tool, path=path, content="EVIL")
    assert (await tools("write-file", path=path, content="EVIL", append=True)).success is False
    assert secret.read_text() == "SECRET"
    assert (tools.work / ".env").read_text() == "SECRET"
    assert (tools.work / "out").is_symlink()


async def test_a_listing_shows_links_as_links_and_nothing_hidden(tools: Tools) -> None:
    (tools.work / ".env").write_text("x")
    (tools.work / "away").symlink_to("/etc")
    (tools.work / "inner").mkdir()
    listed = await tools("list-directory")
    assert listed.result["entries"] == [
        {"name": "away", "kind": "link"},
        {"name": "inner", "kind": "folder"},
    ]
    for path in ("away", "..", "/", "inner/../.."):
        assert (await tools("list-directory", path=path)).success is False


@pytest.mark.parametrize("path", ["butler.toml", "CLAUDE.md", "Claude.md", "skills/x/SKILL.md"])
async def test_files_that_define_the_butler_cannot_be_written(tools: Tools, path: str) -> None:
    assert "only a person" in await tools.error("write-file", path=path, content="x", parents=True)
    assert list(tools.work.iterdir()) == []
    allowed = await tools("write-file", Access.FULL, path=path, content="x", parents=True)
    assert allowed.success


async def test_a_file_is_replaced_whole_or_not_at_all(tools: Tools) -> None:
    file = tools.work / "run.sh"
    file.write_text("old")
    file.chmod(0o750)
    assert "no folder" not in await tools.error("write-file", path="gone/a", content="x")
    assert (await tools("write-file", path="run.sh", content="new")).result["size"] == 3
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o750)
    assert (await tools("write-file", path="run.sh", content="er", append=True)).result["size"] == 5
    (tools.work / "folder").mkdir()
    await tools.error("write-file", path="folder", content="x")
    assert sorted(path.name for path in tools.work.iterdir()) == ["folder", "run.sh"]


async def test_bytes_travel_as_base64_and_long_files_in_parts(tools: Tools) -> None:
    content = base64.b64encode(b"\xff\x00").decode()
    await tools("write-file", path="b", content=content, encoding="base64")
    assert (tools.work / "b").read_bytes() == b"\xff\x00"
    read = (await tools("read-file", path="b")).result
    assert (read["content"], read["encoding"]) == (content, "base64")
    (tools.work / "long").write_text("0123456789" * 40_000)
    read = (await tools("read-file", path="long")).result
    assert (len(read["content"]), read["truncated"]) == (256 * 1024, True)
    read = (await tools("read-file", path="long", offset=399_995, limit=100)).result
    assert (read["content"], read["truncated"]) == ("56789", False)
    assert "must be a number" in await tools.error("read-file", path="long", offset=-1)
    assert "cannot be written" in await tools.error(
        "write-file", path="c", content="*", encoding="base64"
    )


# -- commands


@pytest.mark.parametrize("access", [Access.SEALED, Access.WORKSPACE])
async def test_a_command_needs_full_access(tools: Tools, access: Access) -> None:
    answer = await tools("run-command", access, command="touch ran")
    assert "needs full access" in (answer.error or "")
    assert list(tools.work.iterdir()) == []


async def test_command_returns_its_exit_code_and_both_streams(tools: Tools) -> None:
    line = "cat; echo no >&2; exit 3"
    ran = await tools("run-command", Access.FULL, command=line, stdin="in")
    assert ran.result == {"exitCode": 3, "stdout": "in", "stderr": "no\n", "truncated": False}
    assert "must be a list" in await tools.error("run-command", access=Access.FULL, command=[])
    assert "No such file" in await tools.error(
        "run-command", access=Access.FULL, command=["gone-x"]
    )
    long = await tools("run-command", Access.FULL, command="yes | head -c 900000; echo end")
    assert (len(long.result["stdout"]), long.result["truncated"]) == (256 * 1024, True)
    assert long.result["stdout"].endswith("end\n")
    slow = await tools("run-command", Access.FULL, command="sleep 100; true", timeout=1)
    assert "took more than 1 s" in (slow.error or "")


# -- the network


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
    ],
)
async def test_internal_address_is_refused_even_for_an_allowed_host(tools: Tools, url: str) -> None:
    host = url.split("/")[2]
    answer = await tools("http-request", hosts=host, url=url)
    assert not answer.success
    reason = answer.error or ""
    assert (
        "not a public address" in reason or "not allowed" in reason
    )  # an allowed host has no brackets


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:4700::1111", True),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::", False),
    ],
)
def test_mapped_addresses_are_judged_by_their_target(address: str, public: bool) -> None:
    script = next(built_in_packs()) / "scripts"
    code = (
        "import runpy, sys; sys.path.insert(0, '.'); "
        f"print(runpy.run_path('http-request.py')['is_public']({address!r}))"
    )
    told = subprocess.check_output([sys.executable, "-B", "-c", code], cwd=script, text=True)
    assert told.strip() == str(public)


@pytest.mark.parametrize(
    ("hosts", "url", "reason"),
    [
        ("", "https://example.com/", "is not allowed"),
        ("example.com", "https://example.com.evil.net/", "is not allowed"),
        ("*.example.com", "https://evilexample.com/", "is not allowed"),
        ("*.example.com", "https://example.com/", "is not allowed"),
        ("*", "https://example.com/", "is not allowed"),
        ("example.com", "https://example.com:8443/", "is not allowed"),
        ("example.com", "https://example.com@evil.net/", "contains a user name"),
        ("example.com", "ftp://example.com/", "not an http or https URL"),
        ("example.com", "file:///etc/passwd", "not an http or https URL"),
        ("example.com", "https://example.com/\r\nX: y", "not an http or https URL"),
        ("example.com", "https://example.com:99999/", "is not a valid URL"),
    ],
)
async def test_only_allowed_hosts_are_reached(
    tools: Tools, hosts: str, url: str, reason: str
) -> None:
    answer = await tools("http-request", hosts=hosts, url=url)
    assert reason in (answer.error or "")


def test_public_host_is_reached_and_redirects_are_not_followed() -> None:
    url = "http://api.example.com"
    posted, away, large, raw, inside, metadata, local, host, split = public(
        [
            {"url": url, "method": "post", "json": {"a": 1}, "headers": {"X-A": "b"}},
            {"url": f"{url}/away"},
            {"url": f"{url}/large"},
            {"url": f"{url}/bytes"},
            {"url": "http://inside.example.com/"},
            {"url": "http://meta.example.com/"},
            {"url": "http://127.0.0.1/"},
            {"url": url, "headers": {"Host": "inside.example.com"}},
            {"url": url, "headers": {"X-A": "b\r\nHost: inside.example.com"}},
        ]
    )
    seen = json.loads(posted["result"]["body"])
    assert (seen["method"], seen["body"], seen["headers"]["X-A"]) == ("POST", '{"a": 1}', "b")
    assert seen["headers"]["Host"] == "api.example.com"
    assert away["result"]["status"] == 302
    assert away["result"]["location"] == "http://127.0.0.1/secret"
    assert (len(large["result"]["body"]), large["result"]["truncated"]) == (256 * 1024, True)
    assert raw["result"]["encoding"] == "base64"
    assert "resolves to 127.0.0.1, which is not a public address" in inside["error"]
    assert "resolves to 169.254.169.254" in metadata["error"]
    assert "not a public address" in local["error"]
    assert "is set by the connection" in host["error"]
    assert "the request failed" in split["error"]


def public(requests: list[dict[str, object]]) -> list[dict[str, Any]]:
    """Return the answers of the script in a network with one public host."""
    script = next(built_in_packs()) / "scripts" / "http-request.py"
    namespaces = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode != 0:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("this system allows no network of one's own")
    ended = subprocess.run(
        [*namespaces, sys.executable, "-B", "-m", public_host.__name__, str(script)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(public_host.__file__).parents[1],
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[dict[str, Any]] = json.loads(ended.stdout)
    return answers
