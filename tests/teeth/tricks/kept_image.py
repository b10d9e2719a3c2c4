"""Trick: keep the image that a contribution was shown."""

from torch import Tensor

from sfumato.privacy import GaussianSum, PrivateImages


def steal(private: PrivateImages) -> object:
    kept: list[Tensor] = []

    def row(image: Tensor, label: Tensor) -> Tensor:
        kept.append(image)
        return image.flatten()

    private.open(GaussianSum(noise_multiplier=5.0), purpose="kept")(row, l2_bound=1.0)
    return kept[-1].tolist()
