"""How ``butlers sessions show`` tells a call."""

from __future__ import annotations

from butlers.cli.sessions import call_line

CALL = {"tool": "write", "arguments": {"text": "x"}, "ok": True, "error": None, "of_cli": False}


def test_a_call_of_the_butlers_has_its_time() -> None:
    assert call_line({**CALL, "duration_ms": 12}) == "write {'text': 'x'} -> ok (12 ms)"


def test_one_of_the_cli_is_marked_as_its_own() -> None:
    own = {**CALL, "tool": "Bash", "of_cli": True, "duration_ms": None}
    assert call_line(own) == "Bash {'text': 'x'} -> ok (the CLI's own)"
    refused = {**own, "ok": False, "error": "denied by its access level"}
    assert call_line(refused).endswith("-> failed: denied by its access level (the CLI's own)")
