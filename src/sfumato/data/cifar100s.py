"""CIFAR-100S: CIFAR-100 with 95 % of fifty classes in colour, of fifty in grey; `cifar100s-75`: 75 %."""

from __future__ import annotations

from sfumato.data._skewed import Skewed
from sfumato.data.cifar100 import Cifar100


class Cifar100S(Skewed, Cifar100):
    """Classes with odd numbers (in the order of CIFAR-100's fine labels, from 0) mostly in colour, even ones in grey.

    The publication does not say how it divides the classes; this is the rule that CIFAR-10S follows.
    """

    known_as = "cifar100s"
