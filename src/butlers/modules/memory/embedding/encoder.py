"""BERT sentence encoder in plain numpy, from a folder with ``vocab.txt`` and ``model.safetensors``.

Mean pooling and unit length, as all-MiniLM-L6-v2 wants it. Any BERT model of the same layout works.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from butlers.modules.memory.embedding.wordpiece import WordPiece

Array = NDArray[np.float32]

MAX_TOKENS = 256
BATCH = 16
EPSILON = 1e-12
MASKED = -1e4
_TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64}


class _Layer(NamedTuple):
    qkv: Array
    qkv_bias: Array
    out: Array
    out_bias: Array
    norm: Array
    norm_bias: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array
    last: Array
    last_bias: Array


class BertEncoder:
    """One loaded model. ``embed`` is safe to call from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        shape = json.loads((folder / "config.json").read_text())
        self._heads = int(shape["num_attention_heads"])
        self.dimensions = int(shape["hidden_size"])
        limit = min(MAX_TOKENS, int(shape["max_position_embeddings"]))
        self._tokenizer = WordPiece.read(folder / "vocab.txt", limit)
        weights = read_safetensors(folder / "model.safetensors")
        get = weights.__getitem__
        self._words = get("embeddings.word_embeddings.weight")
        types = get("embeddings.token_type_embeddings.weight")
        self._positions = get("embeddings.position_embeddings.weight")[:limit] + types[0]
        self._norm = get("embeddings.LayerNorm.weight"), get("embeddings.LayerNorm.bias")
        count = int(shape["num_hidden_layers"])
        self._layers = [_layer(weights, f"encoder.layer.{number}.") for number in range(count)]

    def embed(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per text, as rows."""
        encoded = [self._tokenizer.encode(text) for text in texts]
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        # Texts of similar length share a batch, so that little is padded.
        order = sorted(range(len(texts)), key=lambda index: len(encoded[index]))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            vectors[chosen] = self._encode([encoded[index] for index in chosen])
        return vectors

    def _encode(self, batch: Sequence[Sequence[int]]) -> Array:
        width = max(map(len, batch))
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros((len(batch), width), np.float32)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        state = _normalize(self._words[ids] + self._positions[:width], *self._norm)
        bias = ((1 - mask) * np.float32(MASKED))[:, None, None, :]
        for layer in self._layers:
            state = self._apply(layer, state, bias)
        pooled = (state * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)  # type: ignore[no-any-return]

    def _apply(self, layer: _Layer, state: Array, bias: Array) -> Array:
        rows, width, size = state.shape
        per_head = size // self._heads
        flat = state.reshape(rows * width, size)  # one large product is faster than one per row
        parts = np.split(flat @ layer.qkv + layer.qkv_bias, 3, -1)
        query, key, value = (
            part.reshape(rows, width, self._heads, per_head).transpose(0, 2, 1, 3) for part in parts
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(math.sqrt(per_head)) + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(rows * width, size)
        flat = _normalize(flat + (mixed @ layer.out + layer.out_bias), layer.norm, layer.norm_bias)
        inner = _gelu(flat @ layer.up + layer.up_bias)
        flat = _normalize(
            flat + (inner @ layer.down + layer.down_bias), layer.last, layer.last_bias
        )
        return flat.reshape(rows, width, size)


def read_safetensors(file: Path) -> dict[str, Array]:
    """Return the floating-point tensors of a file as float32, without the prefix ``bert.``."""
    with file.open("rb") as source:
        (size,) = struct.unpack("<Q", source.read(8))
        header: dict[str, Any] = json.loads(source.read(size))
        body = np.memmap(file, np.uint8, "r", offset=8 + size)
    found = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in _TYPES:
            continue
        start, end = entry["data_offsets"]
        values = body[start:end].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        found[name.removeprefix("bert.")] = np.asarray(values, np.float32)
    return found


def _layer(weights: dict[str, Array], prefix: str) -> _Layer:
    def get(name: str) -> Array:
        return weights[prefix + name]

    def turned(name: str) -> Array:
        return np.ascontiguousarray(get(name).T)

    own = [f"attention.self.{name}" for name in ("query", "key", "value")]
    return _Layer(
        np.ascontiguousarray(np.concatenate([get(f"{name}.weight") for name in own]).T),
        np.concatenate([get(f"{name}.bias") for name in own]),
        turned("attention.output.dense.weight"),
        get("attention.output.dense.bias"),
        get("attention.output.LayerNorm.weight"),
        get("attention.output.LayerNorm.bias"),
        turned("intermediate.dense.weight"),
        get("intermediate.dense.bias"),
        turned("output.dense.weight"),
        get("output.dense.bias"),
        get("output.LayerNorm.weight"),
        get("output.LayerNorm.bias"),
    )


def _normalize(values: Array, weight: Array, bias: Array) -> Array:
    centered: Array = values - values.mean(-1, keepdims=True)
    variance = np.mean(centered * centered, -1, keepdims=True)
    centered /= np.sqrt(variance + np.float32(EPSILON))
    centered *= weight
    centered += bias
    return centered


def _gelu(values: Array) -> Array:
    """Return the tanh form of GELU; it changes a vector's cosine by less than 1e-5."""
    inner = values * values
    inner *= np.float32(0.044715)
    inner += 1
    inner *= values
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += 1
    inner *= values
    inner *= np.float32(0.5)
    return inner
