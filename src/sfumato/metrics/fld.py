"""How likely real test images are under a mixture round the synthetic ones: quality, variety and copying in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable
from sfumato.statistics.features import compared
from sfumato.statistics.gaussians import mixture_log_likelihoods, mixture_variances, nearest_variance
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Fld(Metric):
    """Jiralerspong et al. (2023): a Gaussian round each synthetic image, its variance fitted to training images.

    A copy of a training image gets a small variance and makes test images unlikely. Fresh real
    images get about zero. Variances are fitted by expectation and maximisation with a weak prior and not by
    gradient steps, and both mixtures have as many centres, so values differ from those of the authors' code.
    """

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = False

    extractor: str = "auto"
    most: int = 10_000  # images of each kind; half as many are centres
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        if real.test is None:
            raise NotApplicable("Expected a test split, got none: on training images, copies would do best.")
        fitted, judged = (
            compared(synthetic, side, self.extractor, most=self.most, seed=self.seed, fewest=4)
            for side in (real.train, real.test)
        )
        ours, train, test = fitted.ours, fitted.theirs, judged.theirs
        excess = fld_of_each(ours, train, test)
        return Score(
            name=f"fld[{fitted.by.name}]",
            value=excess.mean().item(),
            standard_error=(excess.std() / len(excess) ** 0.5).item(),
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "evaluated_on": "test images; training images fit the variances",
                "synthetic_images": min(len(ours), len(train) // 2),
                "training_images": len(train),
                "test_images": len(test),
                "zero_is": "a mixture round half of the training images, fitted to the other half",
                "standard_error_is": "over test images",
            },
        )


def fld_of_each(synthetic: Tensor, train: Tensor, test: Tensor) -> Tensor:
    """What each test image adds to 100 / d (negative log-likelihood - that of real images); (test,)."""
    mean, spread = train.mean(0), train.std(0)
    spread = spread.clamp(
        min=max(1e-6, spread.mean().item() / 100)
    )  # so that a feature that is constant on real images does not dominate
    synthetic, train, test = ((side - mean) / spread for side in (synthetic, train, test))
    first, second = train.tensor_split(2)
    common = max(1e-4, nearest_variance(first, second))  # among real images, so that copies cannot make it small
    count = min(len(synthetic), len(first))  # because more centres alone raise the likelihood
    likely = []
    for centres, points in ((synthetic[:count], train), (first[:count], second)):
        variances = mixture_variances(centres, points, common=common)
        likely.append(mixture_log_likelihoods(test, centres, variances))
    return 100 / test.shape[1] * (likely[1] - likely[0])
