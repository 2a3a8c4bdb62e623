"""Stories told to a fleet of all butlers, without a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from butlers.db.database import Login
from butlers.wire.tokens import FleetKey
from support.stories import Story, StoryFleet, all_stories

TOLD = all_stories()


@pytest.fixture(scope="module")
def story_fleet(admin: Login, session_key: FleetKey) -> Iterator[StoryFleet]:
    made = StoryFleet(admin, session_key)
    made.open()
    yield made
    made.close()


@pytest.mark.parametrize("story", [story for _, story in TOLD], ids=[name for name, _ in TOLD])
def test_story(story_fleet: StoryFleet, story: Story) -> None:
    story_fleet.tell(story)
