"""What a script said, as its caller gets it: success with a result, or an error, and no secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from butlers.domain.redaction import Redactor, redactor


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """``missing`` are declared variables that had no value. Exit code and both streams are as they were,
    but for secrets."""

    success: bool
    result: Any = None
    error: str | None = None
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    missing: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        outcome = {"result": self.result} if self.success else {"error": self.error}
        return {
            "success": self.success,
            **outcome,
            "exitCode": self.exit_code,
            "stderr": self.stderr,
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class SecretMask:
    """Hides the values that one script was given, and every secret that this process knows."""

    own: Redactor

    @classmethod
    def of(cls, values: Iterable[str]) -> SecretMask:
        own = Redactor()
        own.register(*values)
        return cls(own)

    def text(self, text: str) -> str:
        return redactor.scrub(self.own.scrub(text))

    def data(self, value: Any) -> Any:
        return redactor.scrub_data(self.own.scrub_data(value))


def parse_answer(
    code: int, stdout: bytes, stderr: bytes, mask: SecretMask, missing: tuple[str, ...]
) -> ScriptAnswer:
    """A failure is what says so, or leaves with another code than 0; both are believed."""
    said, complaint = _text(stdout), mask.text(_text(stderr))
    found = _parsed(said)
    told = found if _is_answer(found) else _last_line(said)
    success = code == 0 and (told is None or told["success"])
    result = told.get("result") if told else (said.strip() if found is None else found)
    return ScriptAnswer(
        success,
        mask.data(result) if success else None,
        None if success else mask.text(_error(told, complaint, said, code)),
        code,
        mask.text(said),
        complaint,
        missing,
    )


def _error(told: dict[str, Any] | None, complaint: str, said: str, code: int) -> str:
    error = told.get("error") if told else None
    if error is not None and error != "":
        return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    words = complaint.strip() or ("" if told else said.strip())
    return words.splitlines()[-1] if words else f"it left with the code {code} and said nothing"


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _last_line(said: str) -> dict[str, Any] | None:
    """Many scripts print this and that before they parse_answer."""
    lines = said.strip().splitlines()
    found = _parsed(lines[-1]) if len(lines) > 1 else None
    return found if _is_answer(found) else None


def _parsed(said: str) -> Any:
    try:
        value = json.loads(said, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()  # half a character can not go on
    except (ValueError, RecursionError):
        return None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
