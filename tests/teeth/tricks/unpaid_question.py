"""Trick: ask once more than was paid for."""

from torch import Tensor

from sfumato.privacy import GaussianSum, PrivateImages


def steal(private: PrivateImages) -> object:
    def row(image: Tensor, label: Tensor) -> Tensor:
        return image.flatten()

    query = private.open(GaussianSum(noise_multiplier=5.0), purpose="once")
    return [query(row, l2_bound=1.0) for _ in range(2)]
