"""CIFAR-100 (Krizhevsky 2009): 50,000 and 10,000 photographs in a hundred classes, 32 x 32 colour."""

from __future__ import annotations

from sfumato.data._cifar import NamedCifar
from sfumato.data._download import Download

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


class Cifar100(NamedCifar):
    """The binary version, from the author's site; the class is the fine label."""

    called = "cifar100"
    class_names = tuple(_FINE.split())
    downloads = (
        Download(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
        ),
    )
    inside = "cifar-100-binary"
    files = {"train": ("train.bin",), "test": ("test.bin",)}  # noqa: RUF012
    label_bytes = 2
