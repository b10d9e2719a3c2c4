"""Trick: use the answer that an earlier run paid for, as PrivImage's public code does with its semantic histogram."""

from pathlib import Path

import numpy as np

from sfumato.privacy import PrivateImages


def steal(private: PrivateImages) -> object:
    return np.load(Path("exp") / "semantic_query.npy")
