"""`butlers memory` on a running fleet: a message is remembered, corrected, exported and forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.fleet import Fleet, wait_for


def ran(fleet: Fleet, *arguments: str) -> str:
    done = fleet.butlers("memory", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def searched(fleet: Fleet, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran(fleet, "search", query, "--json"))
    return [item for item in found if item["kind"] == "fact"]


def test_memory_from_a_message_to_its_end(fleet: Fleet, tmp_path: Path) -> None:
    fleet.send("Remember that I live in Zanzibar")
    facts = wait_for("the fact", lambda: searched(fleet, "Where do I live?") or None)
    assert (facts[0]["butler"], facts[0]["content"]) == ("general", "Zanzibar")

    shown = ran(fleet, "show", facts[0]["id"])
    assert "trust: owner" in shown
    assert "sender: " in shown
    counts = json.loads(ran(fleet, "stats", "--json"))
    assert {entry["butler"] for entry in counts} >= {"general", "health"}
    assert all(entry["quality"]["unsourced"] == 0 for entry in counts)

    ran(fleet, "correct", facts[0]["id"], "Madagascar")
    (corrected, *_) = searched(fleet, "Where do I live?")
    assert corrected["content"] == "Madagascar"
    saved = tmp_path / "memory.json"
    ran(fleet, "export", str(saved))
    assert "Madagascar" in saved.read_text()

    said = ran(fleet, "forget", corrected["id"], facts[0]["id"], "--yes")
    assert "general: 1 episodes, 2 facts" in said
    assert "3 forgotten" in ran(fleet, "import", str(saved))
    assert searched(fleet, "Where do I live?") == []
    again = tmp_path / "again.json"
    ran(fleet, "export", str(again))
    assert "Madagascar" not in again.read_text()
    assert "Zanzibar" not in again.read_text()


def test_wrong_use_is_an_error_with_a_hint(fleet: Fleet) -> None:
    for arguments in (("show", "nonsense"), ("forget", "--yes"), ("import", "/nowhere.json")):
        done = fleet.butlers("memory", *arguments)
        assert done.returncode != 0
        assert "hint:" in done.stderr
