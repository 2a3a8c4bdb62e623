"""Usage before a refusal of the model is counted, as far as the CLI reports it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from butlers.domain.session import Outcome
from butlers.sessions.session_log import spent_since
from support.cli_butler import CliButler, OpenCliButler
from support.clis import CODEX, Cli
from support.fake_model import Fail, Use
from support.fake_model.turn import INPUT, OUTPUT

LIMITED = {"type": "rate_limit_error", "message": "Too many.", "code": 429}
TOO_MANY = Fail(429, {"type": "error", "error": LIMITED})


async def spent(butler: CliButler) -> int:
    async with butler.butler.database.transaction() as connection:
        return (await spent_since(connection, datetime(2000, 1, 1, tzinfo=UTC))).tokens


async def test_refusal_after_an_answer_counts_as_usage(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli) as butler:
        butler.model.script = [Use("write", text="milk"), TOO_MANY]
        result = await butler.run()
        assert result.outcome is Outcome.RATE_LIMITED
        assert await spent(butler) >= INPUT + OUTPUT


async def test_immediate_refusal_uses_nothing(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli) as butler:
        butler.model.script = [TOO_MANY]
        result = await butler.run()
        assert result.outcome is Outcome.RATE_LIMITED
        assert await spent(butler) == 0


@pytest.mark.parametrize("cli", [CODEX], indirect=True, ids=["codex"])
async def test_warm_process_reports_usage_of_a_failed_turn(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, "warm = 1\n") as butler:
        await butler.ready()
        butler.model.script = [Use("write", text="milk"), TOO_MANY]
        result = await butler.run()
        assert result.outcome is Outcome.RATE_LIMITED
        assert await spent(butler) == INPUT + OUTPUT
