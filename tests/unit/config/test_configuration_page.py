"""Examples in docs/configuration.md are valid, and every key in it has a meaning."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from butlers.channels.registry import load_channels
from butlers.config.butler import ButlerFile, load_butler_config
from butlers.config.fleet import FleetConfig, load_fleet_config
from butlers.config.overrides import shipped_roster
from butlers.config.settings import Settings
from support.config_keys import keys

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "configuration.md").read_text()
EXAMPLES = re.findall(r"```toml\n# ([\w/.]+)\n(.*?)```", PAGE, re.DOTALL)


def test_every_toml_example_names_its_file() -> None:
    assert len(EXAMPLES) == PAGE.count("```toml") >= 12


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example[0])
def test_example_is_valid(tmp_path: Path, example: tuple[str, str]) -> None:
    name, text = example
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    settings = Settings(tmp_path)
    if name == "fleet.toml":
        assert load_fleet_config(settings) != FleetConfig()
    elif name.endswith("/butler.toml"):
        assert load_butler_config(file.parent, settings).name == file.parent.name
    else:
        folder = tmp_path / "roster" / file.stem
        shutil.copytree(shipped_roster() / file.stem, folder)
        config = load_butler_config(folder, settings)
        assert config.override == file
        load_channels(tmp_path).outbound(config)
        load_channels(tmp_path).inbound(config)


@pytest.mark.parametrize("model", [ButlerFile, FleetConfig])
def test_every_key_is_on_the_page(model: type[ButlerFile] | type[FleetConfig]) -> None:
    reference = PAGE.split("\n## Reference\n")[1]
    for path, _ in keys(model):
        table = ".".join(str(key) for key in path[:-1] if isinstance(key, str))
        section = reference.split(f"[{table}]")[1] if table else reference
        row = re.search(rf"^\| `{path[-1]}` \| .+ \| .+ \| (.+) \|$", section, re.MULTILINE)
        assert row, path
        assert row[1].endswith("."), path
