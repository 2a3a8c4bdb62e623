"""A model that does what a script says, behind the APIs that the CLIs speak.

    async with fake_model() as model:
        model.script = [Use("write", text="milk"), Say("done")]
        ...                                # run a CLI against model.url
        assert model.turns[1].results      # what it was told about its call

A script may also stand in the prompt, for a test that does not hold the model: ``[[script:[...]]]`` with the
JSON forms that ``script`` describes. The model keeps no conversation: which step comes next follows from the
tool results that a request carries, so that parallel sessions and repeated requests do not disturb it.
"""

from support.fake_model.script import (
    Call,
    Cut,
    Fail,
    Garble,
    Hang,
    Quote,
    Say,
    Script,
    Step,
    Use,
    in_prompt,
)
from support.fake_model.server import FakeModel, Invocation, fake_model
from support.fake_model.thread import ModelThread
from support.fake_model.turn import Turn

__all__ = [
    "Call",
    "Cut",
    "Fail",
    "FakeModel",
    "Garble",
    "Hang",
    "Invocation",
    "ModelThread",
    "Quote",
    "Say",
    "Script",
    "Step",
    "Turn",
    "Use",
    "fake_model",
    "in_prompt",
]
