"""``butlers costs`` and the state of model providers in ``butlers status``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from butlers.broker.audit import BrokerAudit, Refusal
from butlers.broker.ledger import Entry, Ledger
from butlers.cli.main import app
from butlers.cli.status import _provider_lines


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    ledger, now = Ledger(tmp_path), datetime.now(UTC)
    for at, session, butler, model, usd in (
        (now, "s1", "health", "claude-sonnet-4-5", Decimal("0.5")),
        (now, "s2", "general", "claude-sonnet-4-5", Decimal("0.25")),
        (now, "s2", "general", "home-made", None),
        (now - timedelta(days=40), "s0", "health", "claude-sonnet-4-5", Decimal(9)),
    ):
        ledger.append(Entry(at, session, butler, "anthropic", model, 200, 1000, 25, 200, 0, usd))
    return tmp_path


def rows(*arguments: str) -> dict[str, Any]:
    answer = CliRunner().invoke(app, ["costs", *arguments, "--json"])
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_costs_are_summed_by_butler_with_the_date_of_the_prices(home: Path) -> None:
    found = rows()
    assert [(row["butler"], row["requests"], row["usd"]) for row in found["rows"]] == [
        ("general", 2, "0.25"),
        ("health", 1, "0.5"),
    ]
    assert found["prices_dated"]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("model", ["claude-sonnet-4-5", "home-made"]),
        ("session", ["s1", "s2"]),
        ("day", [f"{datetime.now(UTC):%Y-%m-%d}"]),
    ],
)
def test_costs_are_summed_by_other_keys(home: Path, by: str, names: list[str]) -> None:
    assert [row[by] for row in rows("--by", by)["rows"]] == names


def test_older_days_are_included_on_request(home: Path) -> None:
    assert sum(float(row["usd"]) for row in rows("--days", "60")["rows"]) == 9.75


def test_unknown_prices_are_flagged(home: Path) -> None:
    answer = CliRunner().invoke(app, ["costs", "--by", "model"])
    assert "home-made" in answer.stdout
    assert "price unknown" in answer.stdout
    assert "prices.toml" in answer.stderr
    answer = CliRunner().invoke(app, ["costs"])
    assert "$0.2500 + 1,025 tokens, price unknown" in answer.stdout


def test_status_shows_providers_that_are_held_back() -> None:
    paused = {"state": "paused", "paused_s": 12.5, "reason": "HTTP 429"}
    states = [
        {"providers": {"anthropic": paused, "openai": {"state": "ok"}}},
        {"providers": {"anthropic": paused}},
        {},
    ]
    assert _provider_lines(states) == ["anthropic: paused, HTTP 429, next request in 12.5 s"]


def test_refused_requests_are_listed(home: Path) -> None:
    audit = BrokerAudit(home)
    audit.refused(
        Refusal(
            "2026-01-02T03:04:05+00:00", "anthropic", "POST", "/v1/files", 403, "not offered", "s1"
        )
    )
    shown = CliRunner().invoke(app, ["costs", "--refused"])
    assert shown.exit_code == 0, shown.output
    assert "/v1/files" in shown.stdout
    listed = json.loads(CliRunner().invoke(app, ["costs", "--refused", "--json"]).stdout)
    assert [(one["path"], one["session"], one["status"]) for one in listed] == [
        ("/v1/files", "s1", 403)
    ]
