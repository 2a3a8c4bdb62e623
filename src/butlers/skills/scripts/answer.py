"""The answer of a script: a result or an error, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from butlers.domain.redaction import Redactor, redactor


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """``missing`` lists declared variables without a value. Both streams are unchanged but for secrets."""

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
    """Hide the values that one script was given, and every secret that this process knows."""

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
    """Read the answer from stdout. A script fails by its exit code or by ``"success": false``."""
    output = stdout.decode("utf-8", "replace")
    errors = mask.text(stderr.decode("utf-8", "replace"))
    parsed = _parsed(output)
    answer = parsed if _is_answer(parsed) else _last_line(output)
    success = code == 0 and (answer is None or answer["success"])
    result = answer.get("result") if answer else (output.strip() if parsed is None else parsed)
    return ScriptAnswer(
        success,
        mask.data(result) if success else None,
        None if success else mask.text(_error(answer, errors, output, code)),
        code,
        mask.text(output),
        errors,
        missing,
    )


def _error(answer: dict[str, Any] | None, errors: str, output: str, code: int) -> str:
    error = answer.get("error") if answer else None
    if error is not None and error != "":
        return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    words = errors.strip() or ("" if answer else output.strip())
    return words.splitlines()[-1] if words else f"exit code {code} without an error message"


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _last_line(output: str) -> dict[str, Any] | None:
    """Return the answer in the last line: many scripts print other text before it."""
    lines = output.strip().splitlines()
    found = _parsed(lines[-1]) if len(lines) > 1 else None
    return found if _is_answer(found) else None


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_reject_constant)
        json.dumps(value, ensure_ascii=False).encode()  # rejects unpaired surrogates
    except (ValueError, RecursionError):
        return None
    return value


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
