"""A channel in a folder outside the package, made by following CONTRIBUTING.md literally."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from support.fleet import BUTLERS, ROOT, Fleet, wait_for

TABLES = {"[channels.drop]": "messenger", "[connectors.drop]": "switchboard"}
BROKEN = "raise RuntimeError('this channel has a mistake')\n"


def code_blocks() -> list[tuple[str, str]]:
    """Return language and text of the code blocks in the section about channels."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("### A channel\n")[1].split("\n### ")[0]
    found = re.findall(r"^   ```(\w+)\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    return [(language, dedent(text)) for language, text in found]


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[Fleet]:
    running = Fleet.copy_of(template_home)
    for folder in ("in", "out", "channels/drop", "channels/broken"):
        (running.home / folder).mkdir(parents=True)
    (running.home / "channels/broken/channel.py").write_text(BROKEN)
    for language, text in code_blocks():
        if language == "python":
            (running.home / "channels/drop/channel.py").write_text(text)
        else:
            configure(running, TABLES[text.splitlines()[0]], text)
    running.environment["DROP_HOME"] = str(running.home)
    try:
        running.up()
        yield running
    finally:
        running.close()


def configure(fleet: Fleet, butler: str, table: str) -> None:
    file = fleet.home / "butlers" / f"{butler}.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(table)


def test_message_comes_in_and_answer_goes_out_through_the_new_channel(fleet: Fleet) -> None:
    message = fleet.home / "in" / "001.part"
    message.write_text("weight 80.4 kg")
    message.rename(message.with_suffix(".txt"))
    (answer,) = wait_for("the answer", lambda: list((fleet.home / "out").glob("*.txt")))
    assert "80.4" in answer.read_text()
    (row,) = fleet.rows("SELECT * FROM switchboard.message_inbox WHERE channel = 'drop'")
    assert (row["event_id"], row["sender_roles"]) == ("001.txt", ["owner"])
    (delivery,) = fleet.rows("SELECT * FROM messenger.deliveries WHERE channel = 'drop'")
    assert (delivery["state"], delivery["provider_message_id"]) == ("delivered", answer.name)


def test_connector_of_the_new_channel_is_listed_as_healthy(fleet: Fleet) -> None:
    (connector,) = fleet.call("switchboard", "connectors_list")["connectors"]
    assert (connector["kind"], connector["health"]) == ("drop", "healthy")


def test_broken_channel_is_reported_and_stops_nothing(fleet: Fleet) -> None:
    for butler in BUTLERS:
        state = fleet.health(butler)
        assert state is not None
        assert state["health"] == "healthy"
    assert "channel cannot be loaded" in fleet.log("up")
    checks = fleet.butlers("doctor", "--no-prove", DROP_HOME=str(fleet.home)).stdout
    assert re.search(r"^broken +broken +RuntimeError\('this channel has a mistake'\)", checks, re.M)


def test_new_channel_is_checked_by_doctor(fleet: Fleet) -> None:
    checks = fleet.butlers("doctor", "--no-prove", DROP_HOME=str(fleet.home)).stdout
    assert re.search(r"^(ok|absent) +drop +text files in a folder", checks, re.M)
