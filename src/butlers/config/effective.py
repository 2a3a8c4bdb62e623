"""The configuration that counts for a butler: every key with its value and the origin of that value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from butlers.config.butler import ButlerConfig, load_butler_config, read_butler_file
from butlers.config.document import ConfigSource, Document, has_key
from butlers.config.fleet import FleetConfig
from butlers.config.folders import FLEET_FILE
from butlers.config.locate import KeyPath, dotted, locate
from butlers.config.overrides import is_shipped
from butlers.config.settings import Settings
from butlers.domain.redaction import MASK, redactor

Origin = Literal["shipped", "override", "own", "fleet", "default"]

_REFERENCE = re.compile(r"\$\{[^}]*\}")
_SECRET = re.compile(
    r"passw|secret|token|credential|api[_-]?key|private[_-]?key|(?<![a-z])(?:auth|pin|key)(?![a-z])",
    re.IGNORECASE,
)
# The value of a parameter in a URL, which is often a token.
_PARAMETER = re.compile(r"(?<=[?&])([^=&\s]+)=([^&\s]+)")
_NESTED = (BaseModel, Mapping, tuple)
_TIMEZONE, _TIMEOUT = ("butler", "timezone"), ("butler", "shutdown", "timeout_s")
_OLD_TIMEOUT = ("butler", "shutdown_timeout_s")


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    key: str
    value: Any
    origin: Origin
    file: Path | None = None
    line: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "value": self.value,
            "origin": self.origin,
            "file": str(self.file) if self.file else None,
            "line": self.line,
        }


def effective_values(
    directory: Path, settings: Settings, fleet: FleetConfig
) -> Iterator[EffectiveValue]:
    """Yield every key of the butler in this folder. Secrets are masked; ${VAR} stays as it is written."""
    config = load_butler_config(directory, settings, default_timezone=fleet.timezone)
    document, file = read_butler_file(directory, settings)
    written = Document.read_raw(document.path, override=config.override)
    shipped: Origin = "shipped" if is_shipped(config.directory, settings.home) else "own"
    for path, value in _leaves(file, ()):
        if path == _OLD_TIMEOUT:
            continue  # shown under its other name
        set_at = _OLD_TIMEOUT if path == _TIMEOUT and has_key(written.data, _OLD_TIMEOUT) else path
        found = _computed(config, path, value)
        if has_key(written.data, set_at):
            shown = _shown(path, _at(written.data, set_at), found)
            yield _placed(path, shown, written.source(set_at), shipped)
        elif path == _TIMEZONE:
            yield _fleet_timezone(settings.home, fleet)
        else:
            yield EffectiveValue(dotted(path), _plain(found), "default")


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _leaves(getattr(value, name), (*path, field.alias or name))
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, tuple) and any(isinstance(item, _NESTED) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _computed(config: ButlerConfig, path: KeyPath, value: Any) -> Any:
    """Return the value with what the loaded configuration adds to the file."""
    match path:
        case ("butler", "timezone") | ("butler", "schedule", _, "timezone"):
            return value or config.timezone
        case ("butler", "db", "name"):
            return config.db.name
        case ("butler", "storage", "blob_dir"):
            return config.storage.blob_dir
        case ("butler", "shutdown", "timeout_s"):
            return config.shutdown.timeout_s
    return value


def _placed(path: KeyPath, value: Any, source: ConfigSource, shipped: Origin) -> EffectiveValue:
    line = locate(source.text).line(source.key)
    origin: Origin = "override" if source.overlaid else shipped
    return EffectiveValue(dotted(path), value, origin, source.path, line)


def _fleet_timezone(home: Path, fleet: FleetConfig) -> EffectiveValue:
    key, file = dotted(_TIMEZONE), home / FLEET_FILE
    line = locate(Document.around(file, None, {}).text).line(("timezone",))
    if line is None:
        return EffectiveValue(key, fleet.timezone, "default")
    return EffectiveValue(key, fleet.timezone, "fleet", file, line)


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data


# -- secrets -------------------------------------------------------------------------------------


def _shown(path: KeyPath, written: Any, value: Any) -> Any:
    """Return the value as it may be printed: without secrets and without the content of variables."""
    if path[-1] == "args" and isinstance(written, list):
        return _masked_arguments([str(argument) for argument in written])
    plain = _plain(written if _has_reference(written) else value)
    return _masked(plain) if _may_be_secret(path) else _scrubbed(plain)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _PARAMETER.sub(rf"\1={MASK}", value) if "://" in value else value
    return redactor.scrub(text)


def _may_be_secret(path: KeyPath) -> bool:
    key = next(key for key in reversed(path) if isinstance(key, str))
    return _SECRET.search(key) is not None and not key.endswith("_name")


def _masked(value: Any) -> Any:
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if not isinstance(value, str) or not value or _REFERENCE.fullmatch(value):
        return value
    return MASK


def _masked_arguments(arguments: list[str]) -> list[str]:
    shown: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, value = argument.partition("=")
        if equals and _SECRET.search(name):
            shown.append(f"{name}={_masked(value)}")
        elif before.startswith("-") and "=" not in before and _SECRET.search(before):
            shown.append(_masked(argument))
        else:
            shown.append(redactor.scrub(argument))
    return shown


def _has_reference(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_reference(item) for item in value)
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def _plain(value: Any) -> Any:
    """Return the value in types of JSON."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float) else str(value)
