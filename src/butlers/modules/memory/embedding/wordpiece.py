"""WordPiece tokenizer of uncased BERT models: lower case, no accents, greedy longest pieces."""

from __future__ import annotations

import unicodedata
from pathlib import Path

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
MAX_WORD = 100  # characters; a longer word becomes one unknown piece
MAX_TEXT = 20_000  # characters that are looked at; far more than any model's window
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2FA1F),
    (0xF900, 0xFAFF),
)


class WordPiece:
    def __init__(self, vocabulary: dict[str, int], max_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._limit = max_tokens - 2
        self._unknown = vocabulary[UNKNOWN]
        self._start, self._end = vocabulary[START], vocabulary[END]
        self._known: dict[str, tuple[int, ...]] = {}

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> WordPiece:
        words = file.read_text(encoding="utf-8").split("\n")
        return cls({word: number for number, word in enumerate(words) if word}, max_tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's pieces, with start and end, cut to the model's window."""
        ids: list[int] = []
        for word in split_words(text[:MAX_TEXT]):
            ids += self._pieces(word)
            if len(ids) >= self._limit:
                break
        return [self._start, *ids[: self._limit], self._end]

    def _pieces(self, word: str) -> tuple[int, ...]:
        found = self._known.get(word)
        if found is None:
            found = self._split(word)
            if len(self._known) < 50_000:
                self._known[word] = found
        return found

    def _split(self, word: str) -> tuple[int, ...]:
        if len(word) > MAX_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self._vocabulary:
                    pieces.append(self._vocabulary[piece])
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(pieces)


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case without accents; punctuation stands alone."""
    words: list[str] = []
    current: list[str] = []
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if category == "Mn":
            continue
        if category[0] in "ZC":
            _flush(words, current)
        elif category[0] == "P" or _is_symbol(character) or _is_cjk(character):
            _flush(words, current)
            words.append(character)
        else:
            current.append(character)
    _flush(words, current)
    return words


def _flush(words: list[str], current: list[str]) -> None:
    if current:
        words.append("".join(current))
        current.clear()


def _is_symbol(character: str) -> bool:
    """Return whether BERT treats the character as punctuation though Unicode calls it a symbol."""
    return character in "$+<=>^`|~"


def _is_cjk(character: str) -> bool:
    code = ord(character)
    return code >= 0x3400 and any(low <= code <= high for low, high in _CJK)
