"""The core by hand: pay for a question, ask it, and see that nothing else can be had."""

import torch

from sfumato import SfumatoError
from sfumato.data import open_source
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages

source = open_source("digits")
ledger = Ledger(Budget.of(1.0, count=source.spec.count))
private = PrivateImages.seal(source, ledger)

(mechanism,) = ledger.calibrate(GaussianSum())
query = private.open(mechanism, purpose="mean image of each class")  # charged here, before any pixel is read
sums = query.per_class(lambda image, label: image.flatten(), l2_bound=4.0)
print("noisy class sums:", tuple(sums.shape), "noise per pixel:", round(4.0 * mechanism.noise_multiplier, 2))

try:
    query.per_class(lambda image, label: image.flatten(), l2_bound=4.0)
except SfumatoError as refusal:
    print("asked twice:", refusal)
try:
    torch.as_tensor(private)
except TypeError as refusal:
    print("looked inside:", refusal)
