"""Five styles of answering a person, chosen by a model on a real CLI, checked in the reply."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import npm
from support.fake_model import ModelThread, Say, Step, Use, in_prompt
from support.fleet import BUTLERS, Fleet

STYLES = {
    "React": (("👍",), (Use("notify", intent="react", emoji="👍"),)),
    "Affirm": (("It is done.",), (Use("notify", intent="reply", message="It is done."),)),
    "Follow-up": (("Which day?",), (Use("notify", intent="reply", message="Which day?"),)),
    "Answer": (("80.4 kg.",), (Use("notify", intent="reply", message="80.4 kg."),)),
    "React and reply": (
        ("🎉", "Congratulations!"),
        (
            Use("notify", intent="react", emoji="🎉"),
            Use("notify", intent="reply", message="Congratulations!"),
        ),
    ),
}


@pytest.fixture(scope="module")
def thinking() -> Iterator[ModelThread]:
    with ModelThread() as thread:
        yield thread


@pytest.fixture(scope="module")
def fleet(template_home: Path, thinking: ModelThread) -> Iterator[Fleet]:
    programs = npm.installed("clis")
    running = Fleet.copy_of(template_home)
    try:
        for name in BUTLERS:
            extra = {}
            if name == "general":
                extra = {
                    "ANTHROPIC_API_KEY": "a-key-for-tests",
                    "ANTHROPIC_BASE_URL": thinking.model.url,
                    "PATH": f"{programs}:{os.environ['PATH']}",
                }
            running.start(name, **extra)
        for name in BUTLERS:
            running.wait_healthy(name)
        yield running
    finally:
        running.close()


@pytest.mark.scenario("S001-47")
@pytest.mark.parametrize("style", STYLES)
def test_a_model_that_finds_a_request_context_answers_in_one_of_five_styles(
    fleet: Fleet, thinking: ModelThread, style: str
) -> None:
    """WHEN it receives a REQUEST CONTEXT with a source_channel; THEN the interactive mode is defined in what
    it is told; AND it selects a style, which arrives as such."""
    shown, calls = STYLES[style]
    steps: tuple[Step, ...] = (*calls, Say("Done."))
    script = in_prompt(*steps)
    sent = fleet.send(f"in the style {style}: {script}")
    replies = [reply.message for reply in fleet.replies(sent)]
    while len(replies) < len(shown):
        replies += [reply.message for reply in fleet.replies(sent)]
    assert replies == list(shown)
    first = next(turn for turn in thinking.model.turns if script in turn.user)
    title, _, rest = first.user[first.user.index("REQUEST CONTEXT") :].partition("\n")
    context = json.loads(rest.partition("\n")[0])
    assert title == "REQUEST CONTEXT"
    assert context["source_channel"] == "console"
    assert context["request_id"] == str(sent)
    assert context["sender_roles"] == ["owner"]
    for named in STYLES:
        assert f"**{named}**" in first.system, "each style is defined in what every butler is told"
