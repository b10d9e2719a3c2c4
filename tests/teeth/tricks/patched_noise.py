"""Trick: replace the noise by nothing while nobody looks."""

import sfumato.privacy
from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    sfumato.privacy.Noise.lattice_gaussian = lambda self, count, scale: 0
    return private
