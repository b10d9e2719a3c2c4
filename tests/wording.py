"""The rule for everything that is said of images with a hidden attribute: the word epsilon has one sentence."""

from __future__ import annotations

import re

SENTENCE = re.compile(r"there\s+is\s+no\s+epsilon\s+here", re.IGNORECASE)
EMBEDDED = re.compile(r"data:[a-z/]+;base64,[A-Za-z0-9+/=]*")  # letters of a picture, which are no words
PROMISES = ("VERIFIED", "Guaranteed", "certified", "differential")  # as a certificate, or a page about one, would say


def only_says_there_is_no_epsilon(text: str) -> bool:
    """Whether the word occurs in the sentence "there is no epsilon here" and nowhere else; it need not occur."""
    return "epsilon" not in SENTENCE.sub("", EMBEDDED.sub("", text)).lower()
