"""Token savings of summaries: twelve skills, summarized and in full."""

from __future__ import annotations

import re

import pytest

from butlers.prompt import SectionVisibility
from integration.prompt.adapters.conftest import ADAPTERS, Adapt
from support.fake_model import FakeModel, Turn
from support.prompt_parts import Heard, a_prompt, a_skill

LINES = 160  # about 2,500 tokens, half of the recommended maximum for a skill
SKILLS = [
    a_skill(
        f"topic-{number}",
        description=f"Workflows, checklists and examples for topic {number}.",
        template="\n".join(
            f"{line}. Check point {line} of topic {number}, and note what you found in it."
            for line in range(LINES)
        ),
        visibility=visibility,
    )
    for visibility in SectionVisibility
    for number in range(12)
]
WHOLE, SUMMARISED = SKILLS[:12], SKILLS[12:]


def tokens(turn: Turn) -> int:
    """Count words and punctuation of a request: system prompt, tools and messages."""
    return len(re.findall(r"\w+|[^\w\s]", turn.text))


@pytest.mark.parametrize("name", ADAPTERS)
async def test_twelve_summaries_are_a_tenth_of_twelve_skills(
    adapt: Adapt, model: FakeModel, name: str
) -> None:
    for skills in (WHOLE, SUMMARISED):
        await adapt(name, isolation=None).evaluate_async(a_prompt(*skills), session=Heard().session)
    whole, summarized = model.turns
    assert all(f"point 159 of topic {number}," in whole.user for number in range(12))
    assert all(f"[Skill: topic-{number}]" in summarized.user for number in range(12))
    assert tokens(whole) >= 10 * tokens(summarized), (tokens(whole), tokens(summarized))


async def test_twelve_skills_in_the_home_are_a_tenth_too(adapt: Adapt, model: FakeModel) -> None:
    await adapt(isolation=None).evaluate_async(a_prompt(*WHOLE), session=Heard().session)
    await adapt().evaluate_async(a_prompt(*SUMMARISED), session=Heard().session)
    whole, native = model.turns
    assert "topic 11." in native.text
    assert tokens(whole) >= 10 * tokens(native), (tokens(whole), tokens(native))
