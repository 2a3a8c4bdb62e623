"""Gemini: ``POST /v1beta/models/{model}:generateContent`` and ``:streamGenerateContent``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from support.fake_model.turn import (
    CACHED,
    INPUT,
    OUTPUT,
    Answer,
    Turn,
    fresh,
    plain_event,
    stream,
    texts,
)

# Beside its sessions the CLI asks which model to take and who speaks next, and wants JSON for it.
SIDE_ANSWER = {"reasoning": "-", "model_choice": "flash", "next_speaker": "user"}


class Generate:
    def __init__(self, model: str, *, streams: bool) -> None:
        self._model = model
        self._streams = streams

    def turn(self, body: Mapping[str, Any]) -> Turn:
        parts = [
            (content.get("role", "user"), part)
            for content in body.get("contents", [])
            for part in content.get("parts", [])
        ]
        responses = [part["functionResponse"] for _, part in parts if "functionResponse" in part]
        return Turn(
            model=self._model,
            system=texts((body.get("systemInstruction") or {}).get("parts", [])),
            user="\n".join(
                part["text"] for role, part in parts if role == "user" and "text" in part
            ),
            offered=tuple(
                declared["name"]
                for tool in body.get("tools") or []
                for declared in tool.get("functionDeclarations", [])
            ),
            results=tuple(json.dumps(one.get("response"), ensure_ascii=False) for one in responses),
            body=body,
        )

    def answer(self, turn: Turn, answer: Answer) -> Response:
        calls = [
            {"functionCall": {"name": call.tool, "args": dict(call.args), "id": fresh("fc")}}
            for call in answer.calls
        ]
        text = json.dumps(SIDE_ANSWER) if _wants_json(turn.body) else answer.text
        said = [{"text": text}] if text or not calls else []
        content = {"role": "model", "parts": said + calls}
        whole = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": INPUT,
                "candidatesTokenCount": OUTPUT,
                "totalTokenCount": INPUT + OUTPUT,
                "cachedContentTokenCount": CACHED,
            },
            "modelVersion": turn.model,
            "responseId": fresh("r"),
        }
        return stream([plain_event(whole)]) if self._streams else JSONResponse(whole)


def _wants_json(body: Mapping[str, Any]) -> bool:
    wanted = body.get("generationConfig") or {}
    return "responseJsonSchema" in wanted or "responseSchema" in wanted
