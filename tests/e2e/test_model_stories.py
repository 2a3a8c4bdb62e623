"""Stories that need a model: the real CLIs, all butlers, and a fake model that follows the story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from butlers.db.database import Login
from butlers.wire.tokens import FleetKey
from support.model_stories import MODEL_STORIES, ModelStoryFleet, model_story_fleet
from support.stories import Story, all_stories

TOLD = all_stories(MODEL_STORIES)


@pytest.fixture(scope="module")
def thinking_fleet(admin: Login, session_key: FleetKey) -> Iterator[ModelStoryFleet]:
    with model_story_fleet(admin, session_key) as fleet:
        yield fleet


@pytest.mark.parametrize("story", [story for _, story in TOLD], ids=[name for name, _ in TOLD])
def test_story_on_a_real_cli(thinking_fleet: ModelStoryFleet, story: Story) -> None:
    thinking_fleet.tell(story)
