"""Trick: carry the handle out of the process."""

import pickle

from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return pickle.dumps(private)
