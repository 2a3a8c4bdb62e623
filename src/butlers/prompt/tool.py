"""Tools: Python functions that a model may call, their context and results."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from butlers.domain.errors import InvalidArguments, PromptValidationError
from butlers.domain.tasks import in_thread
from butlers.prompt.params import generic_arguments

if TYPE_CHECKING:
    from butlers.prompt.prompt import Prompt
    from butlers.prompt.rendering import RenderedPrompt
    from butlers.prompt.session import Session

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
NAME = re.compile(r"[a-z0-9_-]{1,64}")
MAX_DESCRIPTION = 200


@dataclass(frozen=True)
class ToolResult(Generic[ResultT]):
    """``message`` is for the model; ``value`` too, unless it is excluded."""

    message: str
    value: ResultT | None = None
    success: bool = True
    exclude_value_from_context: bool = False

    @classmethod
    def ok(cls, value: ResultT, message: str = "") -> ToolResult[ResultT]:
        return cls(message, value)

    @classmethod
    def error(cls, message: str) -> ToolResult[ResultT]:
        return cls(message, None, success=False)

    def text(self) -> str:
        """Return the text for the model."""
        shown = None if self.exclude_value_from_context else _shown(self.value)
        return "\n".join(part for part in (self.message, shown) if part)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Prompt, session and adapter of a tool call."""

    prompt: Prompt[Any]
    rendered_prompt: RenderedPrompt
    session: Session
    adapter: Any = None
    deadline: datetime | None = None


Handler = Callable[..., ToolResult[Any] | Awaitable[ToolResult[Any]]]


class Tool(Generic[ParamsT, ResultT]):
    """``handler(params, *, context)`` returns a ToolResult; it may be a coroutine function."""

    def __init__(
        self, *, name: str, description: str, handler: Handler, accepts_overrides: bool = True
    ) -> None:
        if not NAME.fullmatch(name):
            raise PromptValidationError(
                f"{name[:80]!r} is not a valid tool name",
                hint="1 to 64 lower-case letters, digits, _ and -",
            )
        if not (0 < len(description) <= MAX_DESCRIPTION and description.isascii()):
            raise PromptValidationError(
                f"the description of {name} must have 1 to {MAX_DESCRIPTION} ASCII characters"
            )
        if not callable(handler):
            raise PromptValidationError(f"the tool {name} has no handler")
        self.name, self.description, self.handler = name, description, handler
        self.accepts_overrides = accepts_overrides

    @cached_property
    def params_type(self) -> type | None:
        """A dataclass, or None for a tool without arguments."""
        written = generic_arguments(self)
        kind = written[0] if written else self._handler_takes()
        if kind in (None, type(None)):
            return None
        if not (isinstance(kind, type) and is_dataclass(kind)):
            raise PromptValidationError(f"the params of the tool {self.name} must be a dataclass")
        return kind

    def _handler_takes(self) -> Any:
        first = next(iter(inspect.signature(self.handler).parameters), None)
        try:
            return get_type_hints(self.handler).get(first or "")
        except NameError as error:
            raise PromptValidationError(
                f"the types of the tool {self.name} cannot be resolved: {error}",
                hint="declare them: Tool[MyParams, MyResult](…)",
            ) from error

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments."""
        if self.params_type is None:
            return {"type": "object", "properties": {}}
        try:
            return self._adapter.json_schema()
        except PydanticUserError as error:
            raise PromptValidationError(
                f"the params of the tool {self.name} have no JSON Schema: {error}"
            ) from error

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.params_type or type(None))

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Return the arguments as params; raise InvalidArguments if they do not fit."""
        if self.params_type is None:
            return None
        try:
            return self._adapter.validate_python(dict(arguments))
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
                for one in error.errors(include_url=False)
            )
            raise InvalidArguments(f"{self.name}: {wrong}") from error

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult[Any]:
        """Call the handler; a plain function runs in a thread, as it may be slow."""
        handle = partial(self.handler, self.parse(arguments), context=context)
        is_async = inspect.iscoroutinefunction(self.handler)
        found = handle() if is_async else await in_thread(handle)
        result = await found if inspect.isawaitable(found) else found
        if not isinstance(result, ToolResult):
            raise TypeError(f"its handler returned {type(result).__name__}, not ToolResult")
        return result


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if callable(render := getattr(value, "render", None)):
        return str(render())
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return json.dumps(value, ensure_ascii=False, default=str)
