"""Settings from environment variables, read once when the process starts.

Standard library only: every command imports this file first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from butlers.domain.errors import ConfigInvalid

LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    database_url: str | None = field(default=None, repr=False)
    master_key: str | None = field(default=None, repr=False)
    port_offset: int = 0
    log_format: LogFormat = "text"
    otlp_endpoint: str | None = None
    # The kill point of this process (butlers.domain.faults); set only by tests.
    kill_point: str | None = None
    # How many times shorter leases and pauses of this process are; set only by tests.
    test_pace: float = 1.0
    # Read-only. For ${VAR} in butler.toml and for credentials.
    environ: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from the process's environment, or from the given mapping."""
        snapshot = MappingProxyType(dict(os.environ if environ is None else environ))
        return cls(
            home=_home(snapshot),
            database_url=_value(snapshot, "DATABASE_URL"),
            master_key=_value(snapshot, "BUTLERS_MASTER_KEY"),
            port_offset=_port_offset(snapshot),
            log_format=_log_format(snapshot),
            otlp_endpoint=_value(snapshot, "OTEL_EXPORTER_OTLP_ENDPOINT"),
            kill_point=_value(snapshot, "BUTLERS_KILL_POINT"),
            test_pace=_test_pace(snapshot),
            environ=snapshot,
        )


def process_environment() -> MutableMapping[str, str]:
    """Return the environment that child processes inherit."""
    return os.environ


def limit_numpy_threads() -> None:
    """Use one thread for numpy. Call it before numpy is first imported.

    More threads spin on a busy machine and make a batch slower.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _value(environ: Mapping[str, str], name: str) -> str | None:
    # An empty value in an env file means "not set".
    return environ.get(name) or None


def _home(environ: Mapping[str, str]) -> Path:
    written = _value(environ, "BUTLERS_HOME") or "~/.butlers"
    user_home = _value(environ, "HOME")
    if user_home and (written == "~" or written.startswith("~/")):
        return Path(user_home, written[2:]).absolute()
    try:
        return Path(written).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigInvalid(
            f"BUTLERS_HOME: the home directory of {written!r} is unknown",
            key="BUTLERS_HOME",
            hint="set BUTLERS_HOME to an absolute path",
        ) from error


def _port_offset(environ: Mapping[str, str]) -> int:
    written = _value(environ, "BUTLERS_PORT_OFFSET") or "0"
    try:
        return int(written)
    except ValueError as error:
        raise ConfigInvalid(
            f"BUTLERS_PORT_OFFSET: {written!r} is not an integer",
            key="BUTLERS_PORT_OFFSET",
            hint="it is added to every port: BUTLERS_PORT_OFFSET=1000, or leave it unset",
        ) from error


def _test_pace(environ: Mapping[str, str]) -> float:
    written = _value(environ, "BUTLERS_TEST_PACE") or "1"
    try:
        pace = float(written)
    except ValueError:
        pace = math.nan
    if 0 < pace < math.inf:
        return pace
    raise ConfigInvalid(
        f"BUTLERS_TEST_PACE: {written!r} is not a number above 0",
        key="BUTLERS_TEST_PACE",
        hint="only tests set it; leave it unset",
    )


def _log_format(environ: Mapping[str, str]) -> LogFormat:
    match _value(environ, "BUTLERS_LOG"):
        case None | "text":
            return "text"
        case "json":
            return "json"
        case written:
            raise ConfigInvalid(
                f"BUTLERS_LOG: {written!r} is neither 'text' nor 'json'",
                key="BUTLERS_LOG",
                hint="set BUTLERS_LOG=text or BUTLERS_LOG=json, or leave it unset",
            )
