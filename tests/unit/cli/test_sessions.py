"""Tool calls as ``butlers sessions show`` prints them."""

from __future__ import annotations

import pytest

from butlers.cli.sessions import call_line, print_answer

CALL = {"tool": "write", "arguments": {"text": "x"}, "ok": True, "error": None, "of_cli": False}


def test_call_of_a_butler_tool_shows_its_duration() -> None:
    assert call_line({**CALL, "duration_ms": 12}) == "write {'text': 'x'} -> ok (12 ms)"


def test_call_of_a_cli_tool_is_marked() -> None:
    own = {**CALL, "tool": "Bash", "of_cli": True, "duration_ms": None}
    assert call_line(own) == "Bash {'text': 'x'} -> ok (the CLI's own)"
    refused = {**own, "ok": False, "error": "denied by its access level"}
    assert call_line(refused).endswith("-> failed: denied by its access level (the CLI's own)")


def test_failed_session_prints_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer({"session_id": "0190", "success": False, "output": "", "error": "no model"})
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: no model\nhint: `butlers sessions show 0190` shows more\n"
    print_answer({"session_id": "0190", "success": True, "output": "done", "error": None})
    assert capsys.readouterr().out == "done\n"
