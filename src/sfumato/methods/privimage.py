"""PrivImage (Li, Gong, Li, Zhao, Hou, Wang 2024): private images vote for the public images that a model begins with.

Each private record votes for the k semantic groups of public images (`--public`) that it is nearest to. The votes are
counted for each private class, with noise; images of the groups with most votes are what a diffusion model learns
from, with the private class as their label, before DP-SGD. Groups are the classes of the public images, told by a
small classifier that learns from these, or clusters of features where there are no classes.

What is wrong in public code, and what is done here:

- The noise of the counts comes from a generator with a public seed, and is the same in every run, so two releases can
  be compared without it. Here it is from the core.
- If counts are found in a file, they are used and nothing is charged. Here votes are a question like the gradients,
  with a share of the one budget; no counts are read from anywhere, and a resumed run gets those that it paid for.
- Classes choose in turn, each from the groups that are left, so that the first gets what suits it and the last what
  remains. Here groups are given to all classes at once, by the shares of their own noisy votes.
- Only the norm that rows should have is relied on. Here a record's k votes are one row, which the core bounds at
  sqrt(k), whatever the classifier says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.public_start import PublicStart, expect_public
from sfumato.synthesis.semantic_groups import chosen_groups, groups_of, images_of_groups
from sfumato.values import Images, Spec

CLEAR = 0.1  # of the records of a class: deviation of the noise of a count, in which groups can still be told apart
CLASSIFIER_SECONDS = 60.0  # to train it, about


@dataclass(frozen=True)
class PrivImage(PublicStart, Synthesizer):
    """Hyperparameters, all public: these and those of `PretrainedDiffusion`."""

    votes_share: float = 0.02  # of the budget; the rest is for the gradients
    chosen: float = 0.2  # the share of all groups that all classes together choose, if they choose different ones
    clusters: int = 100  # groups, where public images have no classes

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_within(self, votes_share=(1e-4, 0.999), chosen=(1e-6, 1), clusters=(1, 10**5))

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        noise = 4 / budget.epsilon  # of a sum that has the whole budget, about
        share = (noise * len(spec.classes) / (CLEAR * max(spec.count, 1))) ** 2
        return replace(super().for_task(spec, budget), votes_share=min(0.3, max(0.01, share)))

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our U-Net: days without a GPU."""
        published = {**cls.as_published(spec), **cls.sampled_as_published(spec), **cls.publicly_trained_as_published()}
        return cls(**published, votes_share=0.01, chosen=0.05)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        purpose = "votes of each class for groups of public images"
        return [GaussianSum(share=self.votes_share, purpose=purpose), self.gradients(share=1 - self.votes_share)]

    def seconds(self, spec: Spec) -> float:
        return super().seconds(spec) + CLASSIFIER_SECONDS + 4e-7 * spec.count * spec.pixels

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        shown = expect_public(public, spec)
        votes, gradients = private.ledger.calibrate(*self.plan(spec))
        groups = groups_of(shown, clusters=self.clusters, seed=self.seed)
        each = max(1, int(self.chosen * groups.count / len(spec.classes)))  # the paper's k
        counts = private.open(votes).per_class(groups.votes(each), l2_bound=math.sqrt(each))  # (classes, groups)
        chosen = images_of_groups(shown, groups, chosen_groups(counts, each), spec.classes)
        network = self.untrained(spec)
        self.pretrain(network, chosen, spec)  # which images these are was answered, so nothing is kept
        self.train_privately(private, gradients, network, what="privimage")
        return self.sampled_by(network, spec)
