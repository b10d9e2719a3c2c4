"""MNIST (LeCun, Cortes and Burges 1998): 60,000 and 10,000 handwritten digits, 28 x 28 grey."""

from __future__ import annotations

from sfumato.data._named import NamedIdx, idx_downloads


class Mnist(NamedIdx):
    """The authors' own site no longer serves the files; these are the two mirrors that PyTorch and TensorFlow use."""

    called = "mnist"
    class_names = tuple("0123456789")
    downloads = idx_downloads(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    )
