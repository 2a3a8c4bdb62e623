"""Completion of messages in ``butlers chat``."""

from butlers.cli.chat import completions

EXAMPLES = ["weight 80.4 kg", "my weight is 80", "add milk to shopping", "weight 80.4 kg"]


def test_examples_that_continue_the_text_come_alone():
    assert completions("WEI", EXAMPLES) == ["weight 80.4 kg"]
    assert completions("", EXAMPLES) == [
        "weight 80.4 kg",
        "my weight is 80",
        "add milk to shopping",
    ]


def test_otherwise_examples_with_all_words_are_offered():
    assert completions("is weight", EXAMPLES) == ["my weight is 80"]
    assert completions("xyz", EXAMPLES) == []
