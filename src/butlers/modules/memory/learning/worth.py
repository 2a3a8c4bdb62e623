"""Worth of a text: small talk, questions, orders and restated instructions are not remembered."""

from __future__ import annotations

from butlers.modules.memory.items import normalized, word_set

_CHATTER = word_set("""
    hi hello hey yo thanks thank you thx ty ok okay k yes no yep nope yeah sure great cool nice good
    morning night evening bye goodbye lol haha hm hmm well done please perfect awesome wow alright fine
    see later welcome much so very that is s a it the how are doing what up
    hallo danke tschuess ja nein gut morgen
""")
_ORDERS = word_set("""
    remind show list tell give send delete remove cancel add log set stop pause play open close find
    search write draft summarize translate explain check book buy order call email answer reply make
    create update undo schedule plan help turn read fetch calculate convert compare
""")
_POLITE = word_set("please can could would you")
_PROMPT_STARTS = ("you are ", "you must ", "your task is ")
_PROMPT_PARTS = ("as an ai", "as a language model", "system prompt", "your instructions")
SHORT = 25  # words; a longer message may hold more than its order or question


def junk_reason(content: str) -> str | None:
    """Return why a text is not worth remembering as a fact, or None."""
    words = normalized(content).split()
    plain = content.strip().lower()
    if not words:
        return "it has no words"
    if plain.endswith("?"):
        return "it is a question"
    if plain.startswith(_PROMPT_STARTS) or any(part in plain for part in _PROMPT_PARTS):
        return "it restates an instruction to the assistant"
    if len(words) > 1 and all(word in _CHATTER for word in words):
        return "it is small talk"
    return None


def is_chatter(text: str) -> bool:
    """Return whether a message is small talk, a question or an order, with nothing to consolidate."""
    words = normalized(text).split()
    if not words or all(word in _CHATTER for word in words):
        return True
    first = next((word for word in words if word not in _POLITE), "")
    return len(words) < SHORT and (first in _ORDERS or text.strip().endswith("?"))
