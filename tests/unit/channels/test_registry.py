"""Finding channels and validating their tables in butler.toml."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from butlers.channels import registry
from butlers.channels.registry import ChannelSet, channel_checks, load_channels
from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid

SHIPPED = {"console", "email", "telegram", "webhook"}
PAGER = """
from butlers.sdk import Channel, ChannelConfig
from .numbers import NUMBER

class PagerConfig(ChannelConfig):
    number: int = NUMBER

class PagerChannel(Channel):
    name = "pager"
    outbound_config = PagerConfig
    inbound_config = PagerConfig

CHANNEL = PagerChannel()
"""


def write_channel(home: Path, name: str, code: str, **files: str) -> None:
    folder = home / "channels" / name
    folder.mkdir(parents=True)
    (folder / "channel.py").write_text(code)
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)


def config(folder: Path, text: str, name: str = "messenger") -> ButlerConfig:
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 40104\n{text}')
    return load_butler_config(folder, Settings(folder))


def outbound(channels: ChannelSet, config: ButlerConfig) -> dict[str, Any]:
    return {channel.name: section for channel, section in channels.outbound(config).items()}


def test_shipped_channels_are_found_by_their_folders(tmp_path: Path) -> None:
    found = load_channels(tmp_path)
    assert (found.names, found.broken) == (SHIPPED, {})


def test_channel_of_a_folder_may_import_its_own_files(tmp_path: Path) -> None:
    write_channel(tmp_path, "pager", PAGER, numbers="NUMBER = 7")
    found = load_channels(tmp_path)
    assert found.names == {*SHIPPED, "pager"}
    sections = outbound(found, config(tmp_path, "[channels.pager]\n"))
    assert sections["pager"].number == 7
    assert sections["console"] is None  # always there, without a table


def test_two_homes_have_separate_channels_of_one_name(tmp_path: Path) -> None:
    for home, number in ((tmp_path / "a", 1), (tmp_path / "b", 2)):
        write_channel(home, "pager", PAGER, numbers=f"NUMBER = {number}")
        sections = outbound(load_channels(home), config(home, "[channels.pager]\n"))
        assert sections["pager"].number == number


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("pager", "syntax error", "SyntaxError"),
        ("pager", "import no_such_module", "no_such_module"),
        ("pager", "", "CHANNEL"),
        ("pager", "CHANNEL = 1", "CHANNEL is a int"),
        ("beeper", PAGER, "named 'pager' and stands under 'beeper'"),
    ],
)
def test_broken_channel_fails_alone_with_its_reason(
    tmp_path: Path, name: str, code: str, reason: str
) -> None:
    write_channel(tmp_path, name, code, numbers="NUMBER = 7")
    found = load_channels(tmp_path)
    assert found.names == SHIPPED
    assert reason in found.broken[name]
    # Its table is not an unknown key, so the butler starts without the channel.
    assert set(outbound(found, config(tmp_path, f"[channels.{name}]\n"))) == {"console"}


def test_channel_cannot_replace_a_shipped_one(tmp_path: Path) -> None:
    code = PAGER.replace('"pager"', '"console"')
    write_channel(tmp_path, "console", code, numbers="NUMBER = 7")
    assert type(load_channels(tmp_path).channels["console"]).__name__ == "ConsoleChannel"


def test_entry_point_registers_a_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "pager_package"
    write_channel(package, "pager", PAGER, numbers="NUMBER = 9")
    (package / "channels" / "pager").rename(tmp_path / "site" / "pager_channel")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    entry = EntryPoint("pager", "pager_channel.channel:CHANNEL", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: EntryPoints([entry]))
    assert load_channels(tmp_path).channels["pager"].name == "pager"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("[channels.webhok]\n", 4, "did you mean 'webhook'?", "[channels] may have: "),
        (
            '[channels.webhook.x]\nurl = "https://x"\nsecret = "S"\n',
            4,
            "channels.webhook.x.secret_name: secret_name is required",
            "add `secret_name = ...`",
        ),
        ("[channels]\nwebhook = 3\n", 5, "channels.webhook: must be a table", None),
    ],
)
def test_wrong_table_is_reported_with_file_line_and_hint(
    tmp_path: Path, text: str, line: int, message: str, hint: str | None
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        outbound(load_channels(tmp_path), config(tmp_path, text))
    error = refused.value
    assert (error.path, error.line) == (tmp_path / "butler.toml", line)
    assert message in error.message
    assert hint is None or hint in str(error.hint)


def test_inbound_tables_are_validated_too(tmp_path: Path) -> None:
    switchboard = config(tmp_path, '[connectors.webhook.shop]\nsecrt = "S"\n', "switchboard")
    with pytest.raises(ConfigInvalid, match=r"connectors\.webhook\.shop\.secret"):
        load_channels(tmp_path).inbound(switchboard)


def test_addresses_and_threads_follow_the_channel(tmp_path: Path) -> None:
    found = load_channels(tmp_path)
    assert found.normalize_address("email", " Anna@Example.com ") == "anna@example.com"
    assert found.normalize_address("webhook", " Shop:Anna ") == "Shop:Anna"
    assert found.normalize_address("no such channel", " x ") == "x"
    topics = [name for name in sorted(found.names) if found.threads_are_topics(name)]
    assert topics == ["email"]


def test_doctor_lists_every_channel(tmp_path: Path) -> None:
    write_channel(tmp_path, "pager", "syntax error")
    messenger = config(
        tmp_path, '[channels.webhook.phone]\nurl = "https://x"\nsecret_name = "PHONE"\n'
    )

    def checks(secrets: set[str] | None) -> list[tuple[str, str]]:
        found = channel_checks(tmp_path, secrets, messenger=messenger)
        return [(check.name, check.state) for check in found]

    common = [
        ("pager", "broken"),
        ("console", "ok"),
        ("email", "absent"),
        ("telegram", "absent"),
    ]
    assert checks({"PHONE"}) == checks(None) == [*common, ("webhook", "ok")]
    assert checks(set()) == [*common, ("webhook", "absent")]
