"""An answer of a given form: how it is asked for, and how it is read."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError

from butlers.domain.errors import OutputParseError

FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def instruction(kind: type) -> str:
    schema = json.dumps(TypeAdapter(kind).json_schema(), ensure_ascii=False, sort_keys=True)
    return (
        "Answer with nothing but one fenced JSON code block whose object fits this schema:\n\n"
        f"```json\n{schema}\n```"
    )


def parse(kind: type, text: str) -> Any:
    """The last fenced JSON object of the answer, or what stands in braces, as that dataclass."""
    reason = "there is no JSON object in it"
    bare = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (*reversed(FENCED.findall(text)), text.strip(), bare):
        try:
            return TypeAdapter(kind).validate_json(candidate)
        except ValidationError as error:
            reason = str(error.errors(include_url=False)[0]["msg"])
    failed = OutputParseError(
        f"the answer is no {kind.__name__}: {reason}",
        hint="the model may answer better when it is asked again",
    )
    failed.text = text
    raise failed
