"""The model APIs that the broker speaks: their paths, credentials, usage fields and error bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from butlers.domain.session import Usage

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApiPath:
    """One path of an API. Usage is read from the answers of metered endpoints only."""

    pattern: re.Pattern[str]
    methods: frozenset[str]
    metered: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    default_upstream: str
    credentials: tuple[str, ...]  # variables that hold a key; the first is the usual one
    base_url_variable: str
    runtime: str  # the CLI that speaks this API
    endpoints: tuple[ApiPath, ...]
    read_usage: Callable[[Usage, Json], Usage]  # one JSON document or stream event
    write_error: Callable[[int, str], Json]
    ends: tuple[bytes, ...]  # one of these is in a stream that is complete
    # The CLI would wait by itself for a pause that it reads of, and hold its session's slot for minutes.
    hides_pause: bool = False

    def endpoint(self, method: str, path: str) -> ApiPath | None:
        for endpoint in self.endpoints:
            if method in endpoint.methods and endpoint.pattern.fullmatch(path):
                return endpoint
        return None

    def error_body(self, status: int, message: str) -> bytes:
        return json.dumps(self.write_error(status, message)).encode()


def model_of(path: str, body: Json) -> str | None:
    """Return the model that a request names: in its body, or in Gemini's path."""
    if found := _GEMINI_MODEL.search(path):
        return found[1]
    model = body.get("model")
    return model if isinstance(model, str) else None


def key_headers(credential: str, value: str) -> dict[str, str]:
    """Return the headers that carry a real credential to its provider."""
    match credential:
        case "ANTHROPIC_API_KEY":
            return {"x-api-key": value}
        case "GEMINI_API_KEY":
            return {"x-goog-api-key": value}
        case _:
            return {"authorization": f"Bearer {value}"}


def session_token(headers: Mapping[str, str]) -> str | None:
    """Return the token that a CLI sent where its provider expects the key."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer:
        return bearer.strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key")


# -- Anthropic ---------------------------------------------------------------------------------


def _anthropic_usage(known: Usage, event: Json) -> Usage:
    message = event.get("message")
    found = message.get("usage") if isinstance(message, Mapping) else event.get("usage")
    if not isinstance(found, Mapping):
        return known
    cached = _count(found, "cache_read_input_tokens", known.cached_tokens)
    written = _count(found, "cache_creation_input_tokens", known.written_tokens)
    fresh_before = (known.input_tokens or 0) - (known.cached_tokens or 0) - known.written_tokens
    fresh = _count(found, "input_tokens", fresh_before)
    return replace(
        known,
        input_tokens=fresh + cached + written,
        output_tokens=_count(found, "output_tokens", known.output_tokens),
        cached_tokens=cached,
        written_tokens=written,
    )


_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _anthropic_error(status: int, message: str) -> Json:
    kind = _ANTHROPIC_ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


# -- OpenAI ------------------------------------------------------------------------------------


def _openai_usage(known: Usage, event: Json) -> Usage:
    """Read Responses (`response.usage`, `input_tokens`) and Chat Completions (`prompt_tokens`)."""
    response = event.get("response")
    found = response.get("usage") if isinstance(response, Mapping) else event.get("usage")
    if not isinstance(found, Mapping):
        return known
    chat = "prompt_tokens" in found
    given, made = (
        ("prompt_tokens", "completion_tokens") if chat else ("input_tokens", "output_tokens")
    )
    details = _table(found, f"{given}_details")
    return replace(
        known,
        input_tokens=_count(found, given, known.input_tokens),
        output_tokens=_count(found, made, known.output_tokens),
        cached_tokens=_count(details, "cached_tokens", known.cached_tokens),
    )


def _openai_error(status: int, message: str) -> Json:
    kind = "rate_limit_exceeded" if status == 429 else "invalid_request_error"
    if status >= 500:
        kind = "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


# -- Gemini ------------------------------------------------------------------------------------


def _gemini_usage(known: Usage, event: Json) -> Usage:
    found = event.get("usageMetadata")
    if not isinstance(found, Mapping):
        return known
    prompt = _count(found, "promptTokenCount", 0) + _count(found, "toolUsePromptTokenCount", 0)
    made = _count(found, "candidatesTokenCount", 0) + _count(found, "thoughtsTokenCount", 0)
    return replace(
        known,
        input_tokens=max(prompt, known.input_tokens or 0),
        output_tokens=max(made, known.output_tokens or 0),
        cached_tokens=_count(found, "cachedContentTokenCount", known.cached_tokens),
    )


_GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def _gemini_error(status: int, message: str) -> Json:
    kind = _GEMINI_STATUS.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": kind}}


# -- the table ---------------------------------------------------------------------------------


def _count(table: Json, key: str, otherwise: int | None) -> int:
    value = table.get(key)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if whole else otherwise or 0  # type: ignore[return-value]


def _table(table: Json, key: str) -> Json:
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}


_POST, _GET = frozenset({"POST"}), frozenset({"GET"})
_GEMINI_MODEL = re.compile(r"/models/([A-Za-z0-9._-]+):")

ANTHROPIC = Provider(
    "anthropic",
    "https://api.anthropic.com",
    ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    "ANTHROPIC_BASE_URL",
    "claude-code",
    (
        ApiPath(re.compile(r"/v1/messages"), _POST, metered=True),
        ApiPath(re.compile(r"/v1/messages/count_tokens"), _POST),
        ApiPath(re.compile(r"/v1/models(/[\w.:-]+)?"), _GET),
    ),
    _anthropic_usage,
    _anthropic_error,
    (b"message_stop", b'"type":"error"', b'"type": "error"'),
)
OPENAI = Provider(
    "openai",
    "https://api.openai.com/v1",
    ("OPENAI_API_KEY",),
    "OPENAI_BASE_URL",
    "codex",
    (
        ApiPath(re.compile(r"/responses"), _POST, metered=True),
        ApiPath(re.compile(r"/chat/completions"), _POST, metered=True),
        ApiPath(re.compile(r"/models(/[\w.:-]+)?"), _GET),
    ),
    _openai_usage,
    _openai_error,
    (b"response.completed", b"response.incomplete", b"response.failed", b"[DONE]"),
    hides_pause=True,
)
GEMINI = Provider(
    "gemini",
    "https://generativelanguage.googleapis.com",
    ("GEMINI_API_KEY",),
    "GOOGLE_GEMINI_BASE_URL",
    "gemini",
    (
        ApiPath(
            re.compile(r"/v1(beta)?/models/[\w.-]+:(streamGenerateContent|generateContent)"),
            _POST,
            metered=True,
        ),
        ApiPath(re.compile(r"/v1(beta)?/models/[\w.-]+:countTokens"), _POST),
        ApiPath(re.compile(r"/v1(beta)?/models(/[\w.-]+)?"), _GET),
    ),
    _gemini_usage,
    _gemini_error,
    (b'"finishReason"', b'"blockReason"'),
)
PROVIDERS: Mapping[str, Provider] = {one.name: one for one in (ANTHROPIC, OPENAI, GEMINI)}
BY_RUNTIME: Mapping[str, Provider] = {one.runtime: one for one in PROVIDERS.values()}
