"""Tools: names, params, results; and the event bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from butlers.domain.errors import InvalidArguments
from butlers.prompt import (
    InProcessEventBus,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    PromptValidationError,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)


@dataclass(frozen=True)
class Given:
    word: str
    times: int = 1


@dataclass(frozen=True)
class Plain:
    a: int
    b: tuple[str, ...] = ()


def say(params: Given, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult(message="said", value=params.word * params.times)


async def say_later(params: None, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult(message="later")


def a_context() -> ToolContext:
    section = MarkdownSection(title="A", key="a", template="x")
    prompt = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section]))
    return ToolContext(prompt, prompt.render(), Session())


@pytest.mark.parametrize("name", ["", "A", "a.b", "a b", "x" * 65, "é"])
def test_invalid_tool_name_is_rejected(name: str) -> None:
    with pytest.raises(PromptValidationError, match="not a valid tool name"):
        Tool[Given, str](name=name, description="x", handler=say)


@pytest.mark.parametrize("description", ["", "x" * 201, "é"])
def test_tool_description_must_be_short_ascii(description: str) -> None:
    with pytest.raises(PromptValidationError, match="1 to 200 ASCII"):
        Tool[Given, str](name="a", description=description, handler=say)


def test_params_type_is_declared_or_taken_from_the_handler() -> None:
    written = Tool[Given, str](name="a", description="x", handler=say)
    found: Tool[Any, Any] = Tool(name="a", description="x", handler=say)
    nothing: Tool[Any, Any] = Tool(name="a", description="x", handler=say_later)
    assert (written.params_type, found.params_type, nothing.params_type) == (Given, Given, None)
    assert written.schema["required"] == ["word"]
    assert nothing.schema == {"type": "object", "properties": {}}
    with pytest.raises(PromptValidationError, match="must be a dataclass"):
        _ = Tool[int, str](name="a", description="x", handler=say).params_type


async def test_arguments_become_params_or_are_rejected_with_reasons() -> None:
    tool = Tool[Given, str](name="a", description="x", handler=say)
    result = await tool.call({"word": "ab", "times": 2}, a_context())
    assert result.text() == "said\nabab"
    with pytest.raises(InvalidArguments, match=r"a: word: .*; times: "):
        tool.parse({"times": "many"})
    later: Tool[Any, Any] = Tool(name="b", description="x", handler=say_later)
    assert (await later.call({}, a_context())).text() == "later"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(message="m"), "m"),
        (ToolResult(message="m", value=Plain(1, ("x",))), 'm\n{"a": 1, "b": ["x"]}'),
        (ToolResult(message="m", value="v", exclude_value_from_context=True), "m"),
        (ToolResult.ok({"a": 1}), '{"a": 1}'),
        (ToolResult.error("no"), "no"),
    ],
)
def test_result_text_for_the_model(result: ToolResult[Any], text: str) -> None:
    assert result.text() == text
    assert result.success == (text != "no")


def test_failing_listener_does_not_stop_others() -> None:
    bus, heard = InProcessEventBus(), []

    def fail(event: Plain) -> None:
        raise ZeroDivisionError

    bus.subscribe(Plain, fail)
    bus.subscribe(Plain, heard.append)
    bus.publish(Plain(1))
    bus.publish(Given("not asked for"))
    assert heard == [Plain(1)]
    assert bus.unsubscribe(Plain, heard.append) is True
    assert bus.unsubscribe(Plain, heard.append) is False
    bus.publish(Plain(2))
    assert heard == [Plain(1)]
