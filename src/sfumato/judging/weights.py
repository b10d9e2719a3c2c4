"""Weights of the network that the literature measures FID with: found in a cache, or downloaded with a checksum."""

from __future__ import annotations

from sfumato import data
from sfumato.cache import cache_folder
from sfumato.statistics import features

INCEPTION = data.Download(
    features.INCEPTION_FILE,
    features.INCEPTION_SHA256,
    (f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{features.INCEPTION_FILE}",),
)


def provide_weights(extractor: str | None) -> None:
    """Search the user's cache for the weights; download them (91 MB) only if the network is named."""
    if cache_folder() not in features.FOLDERS:
        features.FOLDERS.insert(0, cache_folder())
    there = any((folder.expanduser() / INCEPTION.name).is_file() for folder in features.FOLDERS)
    if extractor == "inception-v3" and not there:
        data.fetch(INCEPTION, cache_folder())
