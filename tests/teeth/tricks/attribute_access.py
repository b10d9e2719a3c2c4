"""Trick: read the pixels off the handle."""

from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return private._pixels
