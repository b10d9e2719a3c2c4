"""Trick: read the private folder once more, from disk."""

from sfumato import data
from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return data.load("digits")
