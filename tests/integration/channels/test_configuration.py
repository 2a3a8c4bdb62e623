"""Channel tables of a starting butler."""

from __future__ import annotations

import pytest

from butlers.domain.errors import PhaseFailed
from support.in_process import MakeButler


@pytest.mark.parametrize(
    ("butler", "table"), [("messenger", "channels"), ("switchboard", "connectors")]
)
async def test_wrong_channel_table_stops_the_start_before_the_database(
    make_butler: MakeButler, butler: str, table: str
) -> None:
    made = make_butler(butler)
    file = made.directory / "butler.toml"
    lines = [*file.read_text().splitlines(), f"[{table}.webhok]"]
    file.write_text("\n".join(lines))
    with pytest.raises(PhaseFailed) as failed:
        await made.start()
    assert "validate config" in failed.value.message
    assert f"{file}:{len(lines)}:" in failed.value.message
    assert f"unknown key '{table}.webhok'; did you mean 'webhook'?" in failed.value.message
