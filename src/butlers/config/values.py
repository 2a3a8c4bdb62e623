"""Types of configuration values, with error messages for the person who wrote the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
)

from butlers.config.document import refuse
from butlers.domain.json_safe import freeze

_BUTLER_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LAST_PORT = 65535
_YEAR_S = 366 * 24 * 3600


class ConfigTable(BaseModel):
    """One table of a configuration file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


def _not_a_bool(value: object) -> object:
    if isinstance(value, bool):
        raise refuse("must be a number")  # in Python, true equals 1
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise refuse("must not be empty")
    return value


def _butler_name(value: str) -> str:
    if not _BUTLER_NAME.fullmatch(value):
        raise refuse(
            f"{value!r} is not a valid butler name: use lower-case letters, digits and '-', "
            "a letter first, at most 40 characters"
        )
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise refuse(
            f"{value!r} is not a valid database or schema name: use lower-case letters, digits and "
            "'_', no digit first, at most 63 characters"
        )
    return value


def _schema_name(value: str) -> str:
    if value in ("shared", "public", "information_schema") or value.startswith("pg_"):
        raise refuse(f"{value!r} cannot be a butler's schema", hint="use the butler's own name")
    return value


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise refuse(f"{value!r} is not the name of an environment variable")
    return value


def _timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    # zoneinfo reads names as file names: a folder, a path and a NUL raise different errors.
    except (KeyError, ValueError, OSError):
        raise refuse(
            f"{value!r} is not a time zone", hint="use an IANA name such as 'Europe/Berlin'"
        ) from None
    return value


def shifted_port(port: int, info: ValidationInfo) -> int:
    """Return the port with BUTLERS_PORT_OFFSET added. 0 means any free port and stays 0."""
    offset = (info.context or {}).get("port_offset", 0)
    if port == 0 or not offset:
        return port
    if not 1 <= port + offset <= _LAST_PORT:
        raise refuse(
            f"{port} plus BUTLERS_PORT_OFFSET ({offset}) is {port + offset}, "
            f"which is not a port (1 to {_LAST_PORT})",
            hint="choose a smaller BUTLERS_PORT_OFFSET",
        )
    return port + int(offset)


def _web_parts(value: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise refuse(f"is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise refuse("is not a URL of the form http://host:port/path")
    return parts, port


def _web_url(value: str) -> str:
    parts, _ = _web_parts(value)
    if parts.username is not None or parts.password is not None:
        raise refuse("a URL must not contain a password", hint="name a secret instead")
    return value


def _url(value: str, info: ValidationInfo) -> str:
    parts, port = _web_parts(value)
    if port is None or parts.hostname not in _LOOPBACK:
        return value
    # A server on this machine is another butler of the fleet, whose port is shifted as well.
    return _with_port(parts, shifted_port(port, info))


def _with_port(parts: SplitResult, port: int) -> str:
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()


Integer = Annotated[int, BeforeValidator(_not_a_bool)]
Count = Annotated[Integer, Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_not_a_bool), Field(gt=0, le=_YEAR_S)]
Port = Annotated[Integer, Field(ge=0, le=_LAST_PORT)]
Text = Annotated[str, AfterValidator(_not_blank)]
ButlerName = Annotated[str, AfterValidator(_butler_name)]
DatabaseName = Annotated[str, AfterValidator(_identifier)]
SchemaName = Annotated[str, AfterValidator(_identifier), AfterValidator(_schema_name)]
VariableName = Annotated[str, AfterValidator(_variable)]
Timezone = Annotated[str, AfterValidator(_timezone)]
ShiftedPort = Annotated[Port, AfterValidator(shifted_port)]
ShiftedUrl = Annotated[str, AfterValidator(_url)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
FrozenTable = Annotated[Mapping[str, Any], AfterValidator(freeze)]
