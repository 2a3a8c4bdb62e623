"""The price table: the longest name that fits, what is cached costs less, and unknown is not nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from butlers.config.prices import load_prices
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.domain.session import Usage

MILLION = 1_000_000


def test_first_load_writes_prices_and_later_edits_count(tmp_path: Path) -> None:
    first = load_prices(Settings(tmp_path))
    assert first.cost("claude-sonnet-4-5-20250929", Usage(MILLION, MILLION, 0)) == Decimal(18)
    path = tmp_path / "prices.toml"
    path.write_text(
        "dated = 2026-11-15\n[models.claude]\ninput = 1\noutput = 2\n"
        '[models."claude-x"]\ninput = 10\ncached = 1\noutput = 20\n'
    )
    table = load_prices(Settings(tmp_path))
    assert str(table.dated) == "2026-11-15"
    assert table.cost("claude-20251101", Usage(MILLION, 0, MILLION)) == Decimal(1)
    assert table.cost("claude-x-001", Usage(MILLION, MILLION, MILLION // 2)) == Decimal("25.5")


@pytest.mark.parametrize(
    "model",
    [
        None,
        "",
        "nobody-knows-it",
        *("gpt-5-pro", "gpt-5.5", "gpt-50", "gpt-5-nano", "gpt-5-1"),
        *("claude-opus-4-99", "claude-opus-4-99-20301101", "claude-opus-6", "claude", "opus-4"),
        *("claude-sonnet-4-5[1m]", "us.anthropic.claude-opus-4-5", "claude-opus-4-5-2025"),
        "gemini-2.5-flash-nano",
    ],
)
def test_an_unknown_model_has_an_unknown_price(tmp_path: Path, model: str | None) -> None:
    assert load_prices(Settings(tmp_path)).cost(model, Usage(1, 1, 0)) is None


@pytest.mark.parametrize(
    ("model", "input_price"),
    [
        ("claude-opus-4-20250514", 15),
        ("claude-opus-4-1-20250805", 15),
        ("claude-opus-4-5", 5),
        ("claude-opus-4-5-20251101", 5),
        ("claude-opus-4-5@20251101", 5),
        ("claude-sonnet-4-20250514", 3),
        ("claude-sonnet-5", 2),
        ("claude-haiku-4-5-latest", 1),
        ("gpt-5-2025-08-07", "1.25"),
        ("gpt-5-mini-2025-08-07", "0.25"),
        ("gemini-2.5-flash-001", "0.30"),
        ("opus", 5),
        ("sonnet", 3),
        ("haiku", 1),
    ],
)
def test_release_of_a_model_has_the_price_of_the_model(
    tmp_path: Path, model: str, input_price: int | str
) -> None:
    cost = load_prices(Settings(tmp_path)).cost(model, Usage(MILLION, 0, 0))
    assert cost == Decimal(input_price)


def test_cache_writes_have_their_own_price(tmp_path: Path) -> None:
    table = load_prices(Settings(tmp_path))
    half = Usage(MILLION, 0, MILLION // 4, written_tokens=MILLION // 2)
    assert table.cost("claude-sonnet-4-5", half) == Decimal("0.75") + Decimal("0.075") + Decimal(
        "1.875"
    )
    assert table.cost("gpt-5", Usage(MILLION, 0, 0, written_tokens=MILLION)) == Decimal("1.25")


def test_unknown_usage_has_an_unknown_price(tmp_path: Path) -> None:
    assert load_prices(Settings(tmp_path)).cost("gpt-5", Usage(None, 5, None)) is None


def test_invalid_price_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(
        "dated = 2026-11-15\n[models.x]\ninput = -1\noutput = 2\n"
    )
    with pytest.raises(ConfigInvalid, match=r"prices\.toml:3"):
        load_prices(Settings(tmp_path))
