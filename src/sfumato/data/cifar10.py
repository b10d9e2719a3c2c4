"""CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 photographs in ten classes, 32 x 32 colour."""

from __future__ import annotations

from sfumato.data._cifar import NamedCifar
from sfumato.data._download import Download


class Cifar10(NamedCifar):
    """The binary version, from the author's site."""

    called = "cifar10"
    class_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    downloads = (
        Download(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        ),
    )
    inside = "cifar-10-batches-bin"
    files = {"train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)), "test": ("test_batch.bin",)}  # noqa: RUF012
    label_bytes = 1
