"""Hidden tools are neither offered nor callable until their skill is opened."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import httpx
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp_types import Implementation

from butlers.domain.errors import OverBudget
from butlers.prompt import MarkdownSection, SkillExpanded, Tool
from butlers.prompt.adapters import Disclosure, PromptBudget
from butlers.prompt.adapters.bridge import Bridge
from butlers.prompt.adapters.evaluation import Evaluation
from butlers.prompt.prompt import OPEN_SECTIONS_TOOL
from integration.prompt.adapters.conftest import ADAPTERS, Adapt
from support.fake_model import Call, FakeModel, Say, Use
from support.prompt_parts import Heard, Linter, LintParams, a_prompt, offers

OPEN = Use("open_sections", section_keys=["skills.linting"], reason="to lint")


@pytest.mark.scenario("S004-21", "S004-22", "S004-23", "S004-24", "S004-26")
@pytest.mark.parametrize("name", ADAPTERS)
async def test_opened_skill_offers_its_tool_in_the_same_run(
    adapt: Adapt, model: FakeModel, name: str
) -> None:
    linter, heard = Linter(), Heard().on(SkillExpanded)
    model.script = [OPEN, Use("lint_code", paths=["a.py"]), Say("all linted")]
    response = await adapt(name).evaluate_async(a_prompt(linter.skill), session=heard.session)
    first, second, third = model.turns
    assert "[This skill is summarized. Call `open_sections` with key" in first.user
    assert "to view full workflow and access tools: lint_code.]" in first.user
    assert (offers(first, "open_sections"), offers(first, "lint_code")) == (True, False)
    assert "AMARANTH" not in first.text
    assert "AMARANTH" in second.results[0]
    assert offers(second, "lint_code")
    assert "Found 5 issues, fixed 3" in third.results[1]
    assert linter.calls == [("a.py",)]
    assert (response.text, response.runs) == ("all linted", 1)
    assert [event.skill_key for event in heard.events] == ["skills.linting"]


@pytest.mark.scenario("S004-24")
@pytest.mark.parametrize("name", ["claude-code", "gemini"])
async def test_hidden_tool_cannot_be_called(adapt: Adapt, model: FakeModel, name: str) -> None:
    linter = Linter()
    server = "mcp__tools__" if name == "claude-code" else "mcp_tools_"
    hidden = Call(f"{server}lint_code", {"paths": ["a.py"]}, anyway=True)
    model.script = [Use(hidden), Say("ok")]
    await adapt(name).evaluate_async(a_prompt(linter.skill), session=Heard().session)
    assert linter.calls == []
    assert len(model.turns) == 2


async def test_hidden_tool_cannot_be_called_by_any_client_of_the_port() -> None:
    linter = Linter()
    evaluation = Evaluation(a_prompt(linter.skill), Heard().session, installed=False)
    async with Bridge(evaluation, lambda: None).open() as server:
        async with Client(server.url, auth=server.token) as client:
            assert [tool.name for tool in await client.list_tools()] == ["open_sections"]
            with pytest.raises(ToolError, match="Unknown tool"):
                await client.call_tool("lint_code", {"paths": []})
            opening = asyncio.create_task(
                client.call_tool("open_sections", {"section_keys": ["skills.linting"]})
            )
            while not opening.done():  # as one does that hears that its list has changed
                await client.list_tools()
                await asyncio.sleep(0.01)
            assert "AMARANTH" in opening.result().content[0].text
            assert [tool.name for tool in await client.list_tools()] == ["lint_code"]
            await client.call_tool("lint_code", {"paths": ["a"]})
        assert linter.calls == [("a",)]
        for token in (None, "wrong"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with httpx.AsyncClient(verify=False) as client:
                assert (await client.post(server.url, headers=headers)).status_code == 401


@pytest.mark.parametrize("name", ADAPTERS)
async def test_new_run_has_the_opened_tools_from_the_start(
    adapt: Adapt, model: FakeModel, name: str
) -> None:
    """A new run knows the opened sections and the calls already made."""
    linter, other = Linter(), Linter()
    lint = Tool[LintParams, None](name="count", description="Counts.", handler=other.handler)
    section = MarkdownSection(title="A", key="a", template="x", tools=[lint])
    again = [Use("lint_code", paths=["a.py"]), Say("all linted")]
    model.script = [Use("count", paths=["b.py"]), OPEN, Say("never said")]
    heard = Heard()
    heard.session.bus.subscribe(SkillExpanded, lambda _: setattr(model, "script", again))
    adapter = adapt(name, disclosure=Disclosure.RESTART)
    response = await adapter.evaluate_async(
        a_prompt(linter.skill, sections=(section,)), session=heard.session
    )
    assert (response.text, response.runs) == ("all linted", 2)
    fresh = [turn for turn in model.turns if "AMARANTH" in turn.user]
    assert "Already done" in fresh[0].user
    assert "count(" in fresh[0].user
    assert offers(fresh[0], "lint_code")
    assert (linter.calls, other.calls) == ([("a.py",)], [("b.py",)])


async def test_client_that_does_not_list_again_is_restarted() -> None:
    restart: list[bool] = []
    evaluation = Evaluation(a_prompt(Linter().skill), Heard().session, installed=False)
    bridge = Bridge(evaluation, lambda: restart.append(True), relist_s=0.05)
    async with bridge.open() as server, Client(server.url, auth=server.token) as client:
        await client.call_tool_mcp("open_sections", {"section_keys": ["skills.linting"]})
    assert restart == [True]


async def test_self_listing_client_that_does_not_list_is_restarted() -> None:
    restart: list[bool] = []
    linter = Linter()
    evaluation = Evaluation(a_prompt(linter.skill), Heard().session, installed=False)
    bridge = Bridge(evaluation, lambda: restart.append(True))
    named = Implementation(name="codex-mcp-client", version="1")
    async with (
        bridge.open() as server,
        Client(server.url, auth=server.token, client_info=named, mode="legacy") as client,
    ):
        await client.call_tool_mcp("open_sections", {"section_keys": ["skills.linting"]})
        bridge._listed.clear()  # this client lists to check the answer; the one that it plays did not
        assert bridge.list_pending
        with pytest.raises(ToolError, match="a new run follows"):
            await client.call_tool("lint_code", {"paths": ["a"]})
    assert restart == [True]
    assert linter.calls == []


@pytest.mark.parametrize(
    "budget", [PromptBudget(max_cost_usd=Decimal(1)), PromptBudget(max_turns=5)], ids=str
)
async def test_budget_covers_all_runs_of_an_evaluation(
    adapt: Adapt, model: FakeModel, budget: PromptBudget
) -> None:
    linter, heard = Linter(), Heard()
    model.script = [OPEN, Say("never said")]
    again = [Use("lint_code", paths=["a.py"]), Say("all linted")]
    heard.session.bus.subscribe(SkillExpanded, lambda _: setattr(model, "script", again))
    adapter = adapt("claude-code", disclosure=Disclosure.RESTART)
    evaluating = adapter.evaluate_async(
        a_prompt(linter.skill), session=heard.session, budget=budget
    )
    if budget.max_cost_usd is None:
        assert (await evaluating).text == "all linted"
    else:  # a run that was cut off does not report its cost
        with pytest.raises(OverBudget, match="is unknown"):
            await evaluating


@pytest.mark.scenario("S004-23")
async def test_opened_sections_stay_open_in_the_next_evaluation(
    adapt: Adapt, model: FakeModel
) -> None:
    linter, heard = Linter(), Heard()
    prompt = a_prompt(linter.skill)
    model.script = [OPEN, Say("opened")]
    await adapt().evaluate_async(prompt, session=heard.session)
    model.turns.clear()
    model.script = [Use("lint_code", paths=["a.py"]), Say("linted")]
    await adapt().evaluate_async(prompt, session=heard.session)
    assert "AMARANTH" in model.turns[0].user
    assert offers(model.turns[0], "lint_code")
    assert not offers(model.turns[0], "open_sections")
    assert linter.calls == [("a.py",)]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            ["skills.nothing"],
            "unknown section: skills.nothing (hint: closed sections: skills.linting)",
        ),
        ([], "unknown section: no key given"),
        (["task"], "these sections are already open"),
    ],
)
async def test_invalid_section_key_is_reported_to_the_model(keys: list[str], said: str) -> None:
    evaluation = Evaluation(a_prompt(Linter().skill), Heard().session, installed=False)
    answer = await evaluation.call(OPEN_SECTIONS_TOOL, {"section_keys": keys})
    assert (answer.ok, said in answer.text) == (False, True)
