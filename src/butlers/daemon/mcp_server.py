"""Registers a butler's tools on a FastMCP server. The context parameter is injected and not exposed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

import mcp_types as mt
from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.utilities.json_schema import dereference_refs
from pydantic import PrivateAttr

from butlers import __version__
from butlers.domain.errors import ConfigInvalid
from butlers.tools.call_results import bound_error
from butlers.tools.callers import ButlerTokens
from butlers.tools.calls import current_call
from butlers.tools.declaration import ToolFunction, ToolSpec

DROPPED_SCHEMA_KEYS = frozenset(
    {"minLength", "maxLength", "minimum", "exclusiveMinimum", "maximum", "title"}
)
DROPPED_SCHEMA_VALUES = (
    ("default", None),
    ("default", 0),  # and False: what a model leaves out anyway
    ("default", ""),
    ("format", "uuid"),
    ("additionalProperties", False),
    ("additionalProperties", True),
)


def build_server(name: str, description: str, tokens: ButlerTokens) -> FastMCP:
    # Schemas are dereferenced once, when a tool is built, and not each time tools are listed.
    return FastMCP(
        name,
        instructions=description or None,
        version=__version__,
        auth=tokens,
        dereference_schemas=False,
    )


def name_tools(specs: Iterable[tuple[str, ToolSpec]]) -> dict[str, ToolSpec]:
    """Return the tools by name and alias. Raises ConfigInvalid if two declare the same name."""
    named: dict[str, ToolSpec] = {}
    owners: dict[str, str] = {}
    for owner, spec in specs:
        for name in (spec.name, *spec.aliases):
            if name in named:
                raise ConfigInvalid(
                    f"the tool {name!r} is declared by {owners[name]} and by {owner}",
                    hint="rename one of them",
                )
            named[name], owners[name] = spec, owner
    return named


def build_tools(named: Mapping[str, ToolSpec]) -> dict[str, Tool]:
    return {name: _build_tool(name, spec) for name, spec in named.items()}


class ForwardedTool(Tool):
    """A tool with a schema from outside (of a pack's server). Its function gets the arguments unchecked."""

    _function: ToolFunction = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            result: ToolResult = await self._function(current_call.get(), arguments)
        except Exception as error:  # the call pipeline translates it, and logs a crash
            raise bound_error(error) from error
        return result


def _forwarded_tool(name: str, spec: ToolSpec) -> ForwardedTool:
    tool = ForwardedTool(
        name=name, description=spec.description, parameters=dict(spec.parameters or {})
    )
    tool._function = spec.function
    return tool


def _build_tool(name: str, spec: ToolSpec) -> Tool:
    return _function_tool(name, spec) if spec.parameters is None else _forwarded_tool(name, spec)


@lru_cache(maxsize=512)
def _function_tool(name: str, spec: ToolSpec) -> Tool:
    """Build a tool once for all butlers of a process, because computing a schema is slow."""
    tool = FunctionTool.from_function(
        _without_context(spec, name),
        name=name,
        description=spec.description,
        annotations=mt.ToolAnnotations(read_only_hint=spec.is_read_only),
        output_schema=None,
    )
    return tool.model_copy(update={"parameters": _slim(dereference_refs(tool.parameters))})


def register(mcp: FastMCP, tools: Mapping[str, Tool]) -> dict[str, int]:
    """Register the tools, and return the bytes that each takes in a tool list."""
    sizes, schemas = {}, {}
    for name, tool in tools.items():
        mcp.add_tool(tool)
        schemas[name] = tool.parameters
        listed = {"name": name, "description": tool.description, "inputSchema": tool.parameters}
        sizes[name] = len(json.dumps(listed, ensure_ascii=False).encode())
    # Without this the protocol library lists and validates all tools before each call of one.
    mcp._mcp_server.get_tool_input_schema = schemas.get
    return sizes


def _slim(schema: Any) -> Any:
    """Return the schema with what a model needs: each byte costs tokens, and the function validates anyway.

    An argument that may be null may also be omitted. Lengths and limits are named in the error instead.
    """
    if isinstance(schema, list):
        return [_slim(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    choices = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    if len(choices) == 1:
        schema = {
            **{k: v for k, v in schema.items() if k not in ("anyOf", "default")},
            **choices[0],
        }
    if "enum" in schema:  # its description is the docstring of the type
        schema = {key: value for key, value in schema.items() if key != "description"}
    return {
        key: {name: _slim(part) for name, part in value.items()}
        if key == "properties"
        else _slim(value)
        for key, value in schema.items()
        if key not in DROPPED_SCHEMA_KEYS and (key, value) not in DROPPED_SCHEMA_VALUES
    }


def _without_context(spec: ToolSpec, name: str) -> Any:
    """Return the function without its first parameter, the context."""
    signature = inspect.signature(spec.function)
    first, *rest = signature.parameters.values()
    hints = get_type_hints(spec.function, include_extras=True)

    async def call(**arguments: Any) -> Any:
        try:
            return _wrapped(await spec.function(current_call.get(), **arguments))
        except Exception as error:  # the call pipeline translates it, and logs a crash
            raise bound_error(error) from error

    call.__name__ = name.replace(".", "_")
    call.__doc__ = spec.function.__doc__
    call.__annotations__ = {key: hint for key, hint in hints.items() if key != first.name}
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[parameter.replace(annotation=hints[parameter.name]) for parameter in rest],
        return_annotation=hints.get("return", Any),
    )
    return call


def _wrapped(result: Any) -> Any:
    """Wrap a result that is not an object, because the protocol requires one."""
    if not isinstance(result, str | int | float | list | tuple):
        return result
    return ToolResult(
        structured_content={"result": result}, meta={"fastmcp": {"wrap_result": True}}
    )
