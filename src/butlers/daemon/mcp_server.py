"""Puts a butler's declared tools on a FastMCP server: each function's context is injected, never exposed."""

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

UNTOLD = frozenset({"minLength", "maxLength", "minimum", "exclusiveMinimum", "maximum", "title"})


UNTOLD_VALUES = (("default", None), ("additionalProperties", False), ("additionalProperties", True))


def build_server(name: str, description: str, tokens: ButlerTokens) -> FastMCP:
    # Schemas are made flat once, when a tool is registered, not each time tools are listed.
    return FastMCP(
        name,
        instructions=description or None,
        version=__version__,
        auth=tokens,
        dereference_schemas=False,
    )


def name_tools(specs: Iterable[tuple[str, ToolSpec]]) -> dict[str, ToolSpec]:
    """Tools by name and alias. Two owners of one name are found here, and named."""
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
    """A tool whose schema somebody else wrote; its function takes all arguments as they are."""

    _function: ToolFunction = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            result: ToolResult = await self._function(current_call.get(), arguments)
        except Exception as error:  # the pipeline judges it, and logs a crash
            raise bound_error(error) from error
        return result


def _forwarded(name: str, spec: ToolSpec) -> ForwardedTool:
    tool = ForwardedTool(
        name=name, description=spec.description, parameters=dict(spec.parameters or {})
    )
    tool._function = spec.function
    return tool


def _build_tool(name: str, spec: ToolSpec) -> Tool:
    return _described(name, spec) if spec.parameters is None else _forwarded(name, spec)


@lru_cache(maxsize=512)
def _described(name: str, spec: ToolSpec) -> Tool:
    """Once for all butlers of a process: to work out a schema takes longer than all else about a tool."""
    tool = FunctionTool.from_function(
        _without_context(spec, name),
        name=name,
        description=spec.description,
        annotations=mt.ToolAnnotations(read_only_hint=spec.is_read_only),
        output_schema=None,
    )
    return tool.model_copy(update={"parameters": _slim(dereference_refs(tool.parameters))})


def register(mcp: FastMCP, tools: Mapping[str, Tool]) -> dict[str, int]:
    """Put them on the server; says how many bytes of a tool list each takes."""
    sizes, schemas = {}, {}
    for name, tool in tools.items():
        mcp.add_tool(tool)
        schemas[name] = tool.parameters
        listed = {"name": name, "description": tool.description, "inputSchema": tool.parameters}
        sizes[name] = len(json.dumps(listed, ensure_ascii=False).encode())
    # Else the protocol library lists, checks and writes out all tools before each call of one.
    mcp._mcp_server.get_tool_input_schema = schemas.get
    return sizes


def _slim(schema: Any) -> Any:
    """The schema as a model needs it: every session pays for each byte, and the function checks the rest.

    An argument that may be null may be left out, which says the same; lengths and the like are told to
    whoever gets them wrong.
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
    if "enum" in schema:  # its description is what the code says of the type
        schema = {key: value for key, value in schema.items() if key != "description"}
    return {
        key: {name: _slim(part) for name, part in value.items()}
        if key == "properties"
        else _slim(value)
        for key, value in schema.items()
        if key not in UNTOLD and (key, value) not in UNTOLD_VALUES
    }


def _without_context(spec: ToolSpec, name: str) -> Any:
    """The tool as the protocol sees it: its own signature less the first parameter, the context."""
    signature = inspect.signature(spec.function)
    first, *rest = signature.parameters.values()
    hints = get_type_hints(spec.function, include_extras=True)

    async def call(**arguments: Any) -> Any:
        try:
            return _wrapped(await spec.function(current_call.get(), **arguments))
        except Exception as error:  # the pipeline judges it, and logs a crash
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
    """Structured content is an object by the protocol; what is none travels inside one."""
    if not isinstance(result, str | int | float | list | tuple):
        return result
    return ToolResult(
        structured_content={"result": result}, meta={"fastmcp": {"wrap_result": True}}
    )
