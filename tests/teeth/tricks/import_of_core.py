"""Trick: fetch the vault behind the handle from a core submodule."""

from sfumato.privacy import PrivateImages
from sfumato.privacy.private import unlock


def steal(private: PrivateImages) -> object:
    return unlock(private).pixels
