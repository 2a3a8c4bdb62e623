"""Real CLIs whose model fails in the middle: no words of a failed session are an answer."""

from __future__ import annotations

import re

import pytest

from butlers.domain.session import FailureClass, Outcome
from butlers.sessions.guard import HEED
from support.cli_butler import OpenCliButler
from support.clis import GEMINI, Cli
from support.fake_model import Cut, Fail, FakeModel, Garble, Hang, Quote, Say, Step, Use

INTERIM = "Let me look that up for you."
LOOK = Use("status", saying=INTERIM)
WRITE = Use("write", saying=INTERIM, text="milk")
TIMES_OUT = "timeout_s = 10\n"


@pytest.mark.parametrize(
    ("step", "runtime", "kind"),
    [
        pytest.param(Fail(500), "", FailureClass.OUTAGE, id="500"),
        pytest.param(Fail(502), "", FailureClass.OUTAGE, id="502"),
        pytest.param(Cut(), "", FailureClass.OUTAGE, id="cut"),
        pytest.param(Garble(), "", FailureClass.OUTAGE, id="broken JSON"),
        pytest.param(Hang(), TIMES_OUT, FailureClass.RETRY, id="hang"),
        pytest.param(Fail(401), "", FailureClass.OWNER, id="401"),
    ],
)
async def test_words_before_a_failure_are_no_answer(
    open_cli_butler: OpenCliButler, cli: Cli, step: Step, runtime: str, kind: FailureClass
) -> None:
    async with open_cli_butler(cli, runtime, brokered=True) as butler:
        butler.model.script = [LOOK, step]
        result = await butler.run()
        assert (result.failure_class, result.text) == (kind, ""), result.error


async def test_model_that_is_not_there_is_an_outage(
    open_cli_butler: OpenCliButler, model: FakeModel, cli: Cli
) -> None:
    model.url = "http://127.0.0.1:9"  # nobody listens there
    async with open_cli_butler(cli, brokered=True) as butler:
        result = await butler.run()
        assert (result.failure_class, result.text) == (FailureClass.OUTAGE, ""), result.error


async def test_empty_answer_is_not_a_success(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.model.script = [Use("status"), Say("")]
        result = await butler.run()
        assert not result.ok, result
        assert result.failure_class in (FailureClass.OUTAGE, FailureClass.RETRY)


async def test_loop_that_gemini_ends_is_not_a_success(open_cli_butler: OpenCliButler) -> None:
    async with open_cli_butler(GEMINI, brokered=True) as butler:
        butler.model.script = [Use("write", text="milk")] * 20
        result = await butler.run()
        assert result.outcome is Outcome.LIMIT_REACHED
        assert "Loop detected" in result.text
        assert "Done until then: write" in result.text


async def test_looping_model_is_stopped_at_the_limit_of_tool_calls(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, "max_tool_calls = 2\n") as butler:
        butler.model.script = [Use("write", text=str(number)) for number in range(20)]
        result = await butler.run()
        assert result.outcome is Outcome.LIMIT_REACHED
        assert result.text == (
            "I had to stop before I was finished: the session has used its 2 tool calls."
            " Done until then: write (2 times)."
        )
        assert await butler.count("entries") == 2
        assert len(butler.model.turns) <= 2 + HEED + 2
        butler.model.script = [*butler.model.script[:3], Say("Only two fit.")]
        assert (await butler.run()).text == "Only two fit.", "a session that heeds it has an answer"


async def test_long_result_is_read_in_pages(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    """No CLI cuts it or puts it into a file that a sealed session cannot read."""
    async with open_cli_butler(cli) as butler:
        async with butler.owner() as owner:
            value = "x" * 70_000 + " ULTIMATE " + "y" * 10_000
            await owner.call("state_set", {"key": "long", "value": value})
        butler.model.script = [
            Use("state_get", key="long"),
            Use("result_page", result="r1", page=4),
            Quote("ULTIMATE"),
        ]
        result = await butler.run()
        assert (result.outcome, result.text) == (Outcome.OK, "ULTIMATE"), result.error


async def test_session_knows_the_time_and_the_zone(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli) as butler:
        butler.model.script = [Say("It is late.")]
        await butler.run()
        await butler.trigger()
        for turn in (butler.model.turns[0], butler.model.turns[-1]):
            assert re.search(
                r"It is now \d\d:\d\d on \w+day, \d+ \w+ 20\d\d \(.*time zone", turn.user
            )


async def test_what_was_done_before_a_failure_is_not_done_again(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        message = butler.message()
        butler.model.script = [WRITE, Cut()]
        assert (await butler.run(message)).outcome is Outcome.MODEL_UNAVAILABLE
        butler.model.script = [WRITE, Say("It is written.")]
        assert (await butler.run(butler.again(message))).text == "It is written."
        assert await butler.count("entries") == 1
