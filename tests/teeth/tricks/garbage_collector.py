"""Trick: look for the arrays among all objects of the process."""

import gc

from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return [thing for thing in gc.get_objects() if type(thing).__name__ == "Vault"]
