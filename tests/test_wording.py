"""The rule on the word epsilon can be broken, in any case and in any place."""

from __future__ import annotations

import pytest

from wording import only_says_there_is_no_epsilon


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", True),
        ("There is no epsilon here: nothing is proved.", True),
        ("there is\n> no Epsilon  here. There is no epsilon here.", False),  # a quotation mark inside of the sentence
        ("there is\nno EPSILON here", True),
        ("no epsilon here", False),
        ("There is no epsilon here, but epsilon is 3.", False),
        ('{"Epsilon": 1}', False),
        ("hyperepsilons", False),
        ('<img src="data:image/png;base64,AAepsilonAA==">', True),
        ('<img src="data:image/png;base64,AA=="> epsilon', False),
    ],
)
def test_the_rule(text: str, kept: bool) -> None:
    assert only_says_there_is_no_epsilon(text) is kept
