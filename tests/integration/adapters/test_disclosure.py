"""A tool that is hidden is not offered and not callable; once its skill is open, it is both."""

from __future__ import annotations

import pytest

from butlers.prompt import SkillExpanded
from integration.adapters.conftest import ADAPTERS, Adapt
from integration.adapters.parts import Heard, Linter, a_prompt, offers
from support.fake_model import FakeModel, Say, Use

OPEN = Use("open_sections", section_keys=["skills.linting"], reason="to lint")


@pytest.mark.scenario("S004-21", "S004-22", "S004-23", "S004-24", "S004-26")
@pytest.mark.parametrize("name", ADAPTERS)
async def test_an_opened_skill_brings_its_tool_within_the_run(
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
