"""The tables [delivery] and [channels] of the Messenger, and [connectors] of the Switchboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from butlers.channels.registry import load_channels
from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid


def load(folder: Path, text: str, name: str = "messenger") -> ButlerConfig:
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 40104\n{text}')
    return load_butler_config(folder, Settings(folder, port_offset=100))


def outbound(config: ButlerConfig) -> dict[str, Any]:
    """The validated [channels] table, as the Messenger loads it."""
    found = load_channels(config.directory).outbound(config)
    return {channel.name: section for channel, section in found.items()}


def test_messenger_without_tables_has_defaults_and_no_channel(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert (config.delivery.reply_ttl_s, config.delivery.send_ttl_s) == (6 * 3600, 24 * 3600)
    assert config.delivery.quiet_hours is None
    assert config.channels == {}


def test_all_delivery_keys_are_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "[delivery]\nreply_ttl_s = 60\nsend_ttl_s = 120\nper_minute = 5\n"
        'per_recipient_per_minute = 2\nquiet_hours = "22:00-07:00"\n'
        "[channels.webhook.door]\n"
        'url = "http://127.0.0.1:9000/in"\nsecret_name = "DOOR"\nidempotent = true\n'
        '[channels.webhook.far]\nurl = "https://far.example/in"\nsecret_name = "FAR"\n',
    )
    assert config.delivery.quiet_hours == "22:00-07:00"
    webhooks = outbound(config)["webhook"]
    door, far = webhooks["door"], webhooks["far"]
    assert door.url == "http://127.0.0.1:9000/in"  # a foreign port is not shifted
    assert (door.idempotent, far.idempotent) == (True, False)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[delivery]\nreply_ttl_s = 0\n", "delivery.reply_ttl_s"),
        ("[delivery]\nper_minute = 0\n", "delivery.per_minute"),
        ('[delivery]\nquiet_hours = "22-7"\n', "delivery.quiet_hours"),
        ('[delivery]\nquiet_hours = "24:00-07:00"\n', "delivery.quiet_hours"),
        ('[delivery]\nquiet_hours = "07:00-07:00"\n', "delivery.quiet_hours"),
        ("[delivery]\nreply_ttl = 5\n", "delivery.reply_ttl"),
        ('[channels.webhook.x]\nurl = "ftp://x"\nsecret_name = "S"\n', "channels.webhook.x.url"),
        (
            '[channels.webhook.x]\nurl = "http://u:p@x"\nsecret_name = "S"\n',
            "channels.webhook.x.url",
        ),
        ('[channels.webhook.x]\nurl = "https://x"\n', "channels.webhook.x.secret_name"),
        ('[channels.webhook."A b"]\nurl = "https://x"\nsecret_name = "S"\n', "channels.webhook"),
    ],
)
def test_invalid_value_is_named(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        outbound(load(tmp_path, text))
    assert key in refused.value.message


def test_connectors_belong_to_the_switchboard(tmp_path: Path) -> None:
    for name in ("health", "messenger"):
        with pytest.raises(ConfigInvalid, match="only the switchboard") as refused:
            load(tmp_path, "[connectors.webhook.door]\n", name=name)
        assert "switchboard's butler.toml" in str(refused.value.hint)
    assert load(tmp_path, "[connectors.webhook.door]\n", name="switchboard").connectors


@pytest.mark.parametrize("table", ["delivery", "channels"])
def test_delivery_tables_belong_to_the_messenger(tmp_path: Path, table: str) -> None:
    with pytest.raises(ConfigInvalid, match="only the messenger") as refused:
        load(tmp_path, f"[{table}]\n", name="health")
    assert "messenger's butler.toml" in str(refused.value.hint)
