"""Trick: walk through the handle as if it were a list."""

from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return [record for record in private]  # noqa: C416
