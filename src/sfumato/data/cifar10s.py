"""CIFAR-10S (Wang et al. 2020): CIFAR-10 with 95 % of five classes in colour, of five in grey; `cifar10s-75`: 75 %."""

from __future__ import annotations

from sfumato.data._skewed import Skewed
from sfumato.data.cifar10 import Cifar10


class Cifar10S(Skewed, Cifar10):
    """Mostly in colour: automobile, cat, dog, horse, truck, which have the odd numbers; mostly grey: the other five."""

    known_as = "cifar10s"
