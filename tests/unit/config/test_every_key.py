"""Every key of butler.toml and fleet.toml is read back when it is written with a value of its own."""

from __future__ import annotations

import types
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import tomlkit
from pydantic.fields import FieldInfo

from butlers.config.butler import ButlerFile, load_butler_config
from butlers.config.fleet import FleetConfig, load_fleet_config
from butlers.config.locate import KeyPath
from butlers.config.settings import Settings
from support.config_keys import keys

# Values of the keys whose type alone does not tell what is valid.
SAMPLES: dict[KeyPath, Any] = {
    ("timezone",): "Europe/Rome",
    ("dashboard_hosts",): ["butlers.example.org"],
    ("roster",): ["switchboard"],
    ("butler", "name"): "garden",
    ("butler", "timezone"): "Europe/Rome",
    ("butler", "db", "name"): "elsewhere",
    ("butler", "db", "schema"): "beds",
    ("butler", "schedule", 0, "timezone"): "Europe/Rome",
    ("butler", "switchboard", "url"): "http://example.org/mcp",
    ("butler", "storage", "blob_dir"): "elsewhere/blobs",
    ("butler", "storage", "keep_days"): 30,
    ("delivery", "quiet_hours"): "22:00-07:00",
    ("delivery", "owner"): "telegram:4711",
    ("modules",): {"one": {"a": 1}},
    ("channels",): {"one": {"a": 1}},
    ("connectors",): {"one": {"a": 1}},
}
# Other keys that a key needs beside it.
COMPANIONS: dict[KeyPath, dict[str, Any]] = {
    ("butler", "db", "name"): {"schema": "beds"},
    ("butler", "switchboard", "route_contract_min"): {"route_contract_max": 5},
    ("butler", "schedule", 0, "dispatch_mode"): {"prompt": None, "job_name": "run"},
    ("butler", "schedule", 0, "job_name"): {"prompt": None, "dispatch_mode": "job"},
    ("butler", "schedule", 0, "job_args"): {
        "prompt": None,
        "dispatch_mode": "job",
        "job_name": "run",
    },
}
# Keys that a loaded configuration holds under another name than that of the file.
HELD_AS: dict[KeyPath, KeyPath] = {
    ("butler", "schedule"): ("schedules",),
    ("butler", "shutdown_timeout_s"): ("shutdown", "timeout_s"),
}
SCHEDULE = {"name": "first", "cron": "0 7 * * *", "prompt": "Look around."}


def other_value(path: KeyPath, field: FieldInfo) -> Any:
    """Return a valid value that is not the default."""
    if path in SAMPLES:
        return SAMPLES[path]
    kind, default = field.annotation, field.default
    while get_origin(kind) in (types.UnionType, Union):
        kind = get_args(kind)[0]
    if hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != default)
    if kind is bool:
        return not default
    if kind in (int, float, Decimal):
        return (default if isinstance(default, int | float) else 2) + 3
    if get_origin(kind) is tuple:
        return ["SOMETHING"]
    return "something" if kind is str else {"a": 1}


def nested(path: KeyPath, value: Any) -> dict[str, Any]:
    """Return the smallest file with this key."""
    data: dict[str, Any] = {"butler": {"name": "garden", "port": 40190}}
    if path[0] == "connectors":
        data["butler"]["name"] = "switchboard"
    if path[0] in ("delivery", "channels"):
        data["butler"]["name"] = "messenger"
    place: Any = data
    for key, below in pairwise(path):
        if below == 0:
            place[key] = [dict(SCHEDULE)]
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    place.update(COMPANIONS.get(path, {}) | {path[-1]: value})
    return data


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(one) for key, one in value.items() if one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


def held(config: Any, path: KeyPath) -> Any:
    for length in range(len(path), 0, -1):
        if path[:length] in HELD_AS:
            path = (*HELD_AS[path[:length]], *path[length:])
            break
    for key in path[1:] if path[0] == "butler" else path:
        config = config[key] if isinstance(key, int) else getattr(config, key)
    return config


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return float(value) if isinstance(value, Decimal | int) else value


OF_BUTLER = dict(keys(ButlerFile))
OF_FLEET = dict(keys(FleetConfig))


@pytest.mark.parametrize("path", OF_BUTLER, ids=lambda path: ".".join(map(str, path)))
def test_key_of_a_butler_is_read_back(tmp_path: Path, path: KeyPath) -> None:
    value = other_value(path, OF_BUTLER[path])
    assert value != OF_BUTLER[path].default
    (tmp_path / "butler.toml").write_text(tomlkit.dumps(without_none(nested(path, value))))
    config = load_butler_config(tmp_path, Settings(tmp_path / "home"))
    if path[-1] == "blob_dir":
        value = tmp_path / "home" / value
    assert plain(held(config, path)) == plain(value)


@pytest.mark.parametrize("path", OF_FLEET, ids=lambda path: ".".join(map(str, path)))
def test_key_of_the_fleet_is_read_back(tmp_path: Path, path: KeyPath) -> None:
    value = other_value(path, OF_FLEET[path])
    assert value != OF_FLEET[path].default
    (tmp_path / "fleet.toml").write_text(tomlkit.dumps({str(path[0]): value}))
    assert plain(held(load_fleet_config(Settings(tmp_path)), path)) == plain(value)


def test_the_keys_were_found() -> None:
    assert len(OF_BUTLER) > 60
    assert ("butler", "schedule", 0, "missed_within_s") in OF_BUTLER
