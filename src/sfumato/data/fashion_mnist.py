"""FashionMNIST (Xiao, Rasul and Vollgraf 2017): 60,000 and 10,000 articles of clothing, 28 x 28 grey."""

from __future__ import annotations

from pathlib import Path

from sfumato.data._named import NamedIdx, idx_downloads


class FashionMnist(NamedIdx):
    """Also found where Debian's package dataset-fashion-mnist puts it."""

    called = "fashion-mnist"
    class_names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    downloads = idx_downloads(
        ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",),
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    )

    @classmethod
    def places(cls) -> tuple[Path, ...]:
        return (*super().places(), Path("/usr/share/datasets/fashion-mnist"))
