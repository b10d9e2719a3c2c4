"""Sfumato (this project, 2026): images from noisy class mixtures, selected and labelled by a private teacher.

The budget pays for two things. About a third pays for noisy sums: means and second moments of the images in a compact
public basis (the image code), from which a mixture of Gaussians is fitted to each class. The rest pays for a teacher,
a linear classifier on fixed features, trained by DP-SGD: scattering of grey images, patches and scattering in colour.

With a public network (`network`) a second teacher is trained on its features, for students that have the network too;
and with EfficientNet-Lite0 the first class images of photographs are those whose features have the noisy class means.

Everything else is post-processing. Class images: several candidates are sampled from the mixture of a class, and the
teacher selects one, so that image and label agree. Distillation set: further sampled images and procedural images,
which the teacher labels with its logits; students are trained on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.networks.linear_teacher import Features, LinearHead, LinearTeacher, WhitenedFeatures
from sfumato.networks.network_maps import NetworkMaps
from sfumato.networks.photograph_features import PhotographFeatures
from sfumato.networks.public_network import LITE0, NO_NETWORK, certified_name, public_features
from sfumato.networks.scattering import ScatteringFeatures
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, descend
from sfumato.synthesis import class_mixtures, moments
from sfumato.synthesis.class_mixtures import (
    ClassMixtureQuestions,
    choose_code,
    class_deviations,
    common_mean,
    noise_of,
)
from sfumato.synthesis.dead_leaves import dead_leaves
from sfumato.synthesis.inversion import STEPS
from sfumato.synthesis.mixture_sampler import MixtureSampler, quantised
from sfumato.synthesis.scenes import scenes
from sfumato.synthesis.spectrum import Spectrum
from sfumato.synthesis.teacher_filtered import (
    CHUNK,
    MOST_INVERTED,
    Amounts,
    ClassMaps,
    NetworkTeacher,
    ProceduralImages,
    TeacherFilteredSampler,
)
from sfumato.values import Images, Spec

PURPOSES = {
    **class_mixtures.PURPOSES,
    "spectrum": "how much coarse and fine detail images have, and their mean colours, over all images",
    "teacher": "gradients of the teacher",
    "network mean": "what the public network sees where, the mean of all images",
    "network class means": "what the public network sees where, the mean of each class",
    "network teacher": "gradients of the teacher that sees through the public network",
}
SPECTRUM_SHARE = 0.05  # of the mixtures' part of the budget, of colour images
SPECTRUM_EXAMPLES = 512  # procedural images that the spectrum is relative to
NETWORK_MEAN_SHARE = 0.1  # of the share of the network's means; all classes contribute to this one
# Lengths of what the network sees, relative to procedural images, where it is about 2: of images, and of their
# deviations from the mean. Longer ones are clipped.
NETWORK_BOUNDS = (4.0, 2.5)
WHITENING_IMAGES = 2_000  # sampled images from which the whitening of the features is estimated
SMALLEST_PHOTOGRAPH = 16  # pixels; smaller images have no fine structure


@dataclass(frozen=True)
class Sfumato(Synthesizer):
    """Hyperparameters, all public."""

    public_images: ClassVar[Literal["welcome"]] = "welcome"
    free: ClassVar[frozenset[str]] = frozenset({"candidates", "transfer_ratio", "procedural_share"})

    mixture_share: float = 0.3  # of the budget; the rest is the teacher's
    means_share: float = 0.15  # of the mixtures' part of the budget
    axes: int = 48  # principal axes of variation, at most
    components: int = 12  # of the mixture of each class
    component_rounds: int = 4  # of Lloyd's algorithm
    rounds: int = 800  # of the teacher's DP-SGD
    sampling: float = 0.03
    rate: float = 100.0
    l2_bound: float = 0.1  # clipping bound of the teacher's gradients
    whitening_level: float = 0.03  # variance that strong feature directions are reduced to, relative to the largest
    candidates: int = 6  # sampled for each class image, of which the teacher selects one
    transfer_ratio: int = 2  # images of the distillation set for each class image
    procedural_share: float = 0.25  # of the distillation set, unless the images are photographs
    network: str = NO_NETWORK  # a public network: efficientnet-lite0, or the path of a file
    network_share: float = 0.4  # of the budget, if there is a public network, for the teacher that sees through it
    picture_share: float = 0.2  # of the budget, if it is EfficientNet-Lite0 and images are in colour, for class images
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(
            self,
            mixture_share=(0.001, 0.999),
            means_share=(0.001, 0.9),
            axes=(1, 10_000),
            components=(1, 10_000),
            component_rounds=(1, 1_000),
            rounds=(1, 1_000_000),
            sampling=(1e-9, 1),
            rate=(1e-9, 1e9),
            l2_bound=(1e-9, 1e9),
            whitening_level=(1e-6, 1e6),
            candidates=(1, 1_000),
            transfer_ratio=(1, 1_000),
            procedural_share=(0, 1),
            network_share=(0.001, 0.799),  # with the pictures below 1, so that something is left for the others
            picture_share=(0.001, 0.2),
            seed=(0, 2**31 - 2),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # The mixtures get a smaller part of the budget where there is more noise, because a student owes most to the
        # teacher; more rounds and larger steps of the teacher help where there is less noise.
        signal = min(budget.epsilon, 100.0) * spec.count
        class_signal = signal / len(spec.classes)
        # About 2,000 records in a round keep the sampling noise below the privacy noise. Without clipping (epsilon inf)
        # gradients are about ten times as long, so the rate is smaller.
        rate = 2.0 if math.isinf(budget.epsilon) else min(200.0, 100 * math.sqrt(signal / 60_000))
        # Students of photographs are trained on procedural images, so more of the budget is the teacher's.
        colour = _in_colour(spec)
        mixture_share = 0.2 if colour else 0.3 * min(1.0, (class_signal / 1_000) ** 0.115)
        # A student needs many images, and further ones cost no privacy.
        asked = ClassMixtureQuestions.for_task(spec, budget)
        transfer_ratio = round(min(20.0, max(2.0, 20_000 / max(spec.count, 1))))
        return cls(
            mixture_share=round(max(0.1, mixture_share), 3),
            means_share=asked.means_share,
            components=asked.components,
            rounds=round(min(1_000.0, max(50.0, 800 * (signal / 60_000) ** 0.7))),
            sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))),
            rate=round(rate, 1),
            whitening_level=round(min(1.0, max(0.03, 0.03 * (60_000 / signal) ** 0.75)), 3),
            transfer_ratio=transfer_ratio,
            candidates=2 if colour else 6,
        )

    def _mixture_questions(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(self.means_share, self.axes, self.components, self.component_rounds, self.seed)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        beside = SPECTRUM_SHARE if _in_colour(spec) else 0.0
        mixture = self._mixture_questions().plan(self.mixture_share, beside=beside)
        if beside:
            spectrum = GaussianSum(share=self.mixture_share * beside, purpose=PURPOSES["spectrum"])
            mixture = [*mixture[:2], spectrum, *mixture[2:]]
        teacher = GaussianSum(
            rounds=self.rounds, sampling=self.sampling, share=1 - self.mixture_share, purpose=PURPOSES["teacher"]
        )
        if self.network == NO_NETWORK:
            return [*mixture, teacher]
        # The questions through the network have their shares of the whole budget, and the others divide the rest.
        through_network = {"network teacher": self.network_share}
        if self._pictures(spec):
            for_mean = NETWORK_MEAN_SHARE * self.picture_share
            means = {"network mean": for_mean, "network class means": self.picture_share - for_mean}
            through_network = {**means, **through_network}
        left = 1 - sum(through_network.values())
        asked = [replace(each, share=left * each.share) for each in (*mixture, teacher)]
        for name, share in through_network.items():
            form = teacher if name == "network teacher" else GaussianSum()
            asked.append(replace(form, share=share, purpose=PURPOSES[name]))
        return asked

    def _pictures(self, spec: Spec) -> bool:
        """Whether class images are found by what the public network sees."""
        return self.network == LITE0 and _in_colour(spec)

    def public_network(self) -> str | None:
        return None if self.network == NO_NETWORK else certified_name(self.network)

    def seconds(self, spec: Spec) -> float:
        # Per image on two cores: its features, a sampled image, and a procedural one.
        photographs, large = _in_colour(spec), max(spec.height, spec.width) > 40
        if photographs:
            features, sampled, procedural = 1.3e-3, 5e-4, 3e-3 if large else 1.2e-3
            from_mixtures, invented = 0.5 * self.candidates, 1.0 * self.transfer_ratio  # only aligned ones are sampled
        else:
            features, sampled, procedural = 4.5e-4 * spec.pixels / 784, 0.0, 0.0
            from_mixtures = max(self.candidates, self.transfer_ratio)
            invented = self.transfer_ratio * self.procedural_share
        per_record = 1.5 * features + from_mixtures * (features + sampled) + invented * (features + procedural)
        rows = self.rounds * self.sampling * spec.count
        return 10 + 0.01 * self.rounds + 1e-5 * rows + spec.count * per_record + self._network_seconds(spec)

    def _network_seconds(self, spec: Spec) -> float:
        """For what is seen through the public network; an image and its mirror image are seen for the teacher."""
        if self.network == NO_NETWORK:
            return 0.0
        once = 4.5e-3 if max(spec.height, spec.width) > 40 else 1.5e-3  # one image through EfficientNet-Lite0
        pictures = once * (spec.count + 3 * STEPS * MOST_INVERTED) if self._pictures(spec) else 0.0
        return 2 * once * (spec.count + 6_000) + pictures

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        # A network that cannot be used is refused here, before anything is charged.
        seen = None if self.network == NO_NETWORK else public_features(self.network, spec.shape)
        names = {purpose: name for name, purpose in PURPOSES.items()}
        calibrated = private.ledger.calibrate(*self.plan(spec))
        questions = {names[asked.purpose]: asked for asked in calibrated}
        code = choose_code(private, calibrated)
        photographs = code.kind == "scene" and _large_enough(spec)
        procedural = self._procedural_images(private, questions, photographs=photographs)
        sampler = self._mixture_questions().fit(private, calibrated, code)
        features = PhotographFeatures(*spec.shape) if photographs else ScatteringFeatures(*spec.shape)
        teacher = self._train_teacher(private, questions["teacher"], sampler, features)
        class_maps = self._class_maps(private, questions, procedural) if self._pictures(spec) else None
        network_teacher = None
        if seen is not None:
            seeing = self._train_teacher(private, questions["network teacher"], sampler, seen, affine=True)
            network_teacher = NetworkTeacher(seeing, seen.name)
        public_pixels = None if public is None or not len(public) else public.pixels
        amounts = Amounts(self.candidates, self.transfer_ratio, self.procedural_share)
        return TeacherFilteredSampler(
            amounts,
            spec,
            sampler,
            procedural,
            teacher,
            network_teacher,
            class_maps,
            public_pixels,
            photographs=photographs,
        )

    def _procedural_images(
        self, private: PrivateImages, questions: dict[str, GaussianSum], *, photographs: bool
    ) -> ProceduralImages:
        """Scenes for photographs, in colour with their detail and colours; dead leaves for other images."""
        spec = private.spec
        if not photographs:
            return lambda count, draw: quantised(dead_leaves(count, spec.shape, draw))
        if "spectrum" not in questions:
            return lambda count, draw: quantised(scenes(count, spec.shape, draw))
        examples = scenes(SPECTRUM_EXAMPLES, spec.shape, torch.Generator().manual_seed(self.seed))
        spectrum = Spectrum(examples)
        query = private.open(questions["spectrum"])

        def clipped_row(image: Tensor, label: Tensor) -> Tensor:
            return moments.clipped(spectrum.row(image), spectrum.bound) / spectrum.bound

        scale = spectrum.bound / spec.count
        mean_row = query(clipped_row, l2_bound=1.0).float() * scale
        match = spectrum.matching(mean_row, deviation=noise_of(query) * scale)
        return lambda count, draw: quantised(match(scenes(count, spec.shape, draw)))

    def _class_maps(
        self, private: PrivateImages, questions: dict[str, GaussianSum], procedural: ProceduralImages
    ) -> ClassMaps:
        """What the public network sees where in the images of each class, on average."""
        examples = procedural(SPECTRUM_EXAMPLES, torch.Generator().manual_seed(self.seed))
        maps = NetworkMaps(examples.float() / 255)
        seen = private.mapped(lambda image: maps(image[None])[0])
        common = common_mean(seen.open(questions["network mean"]), NETWORK_BOUNDS[0], maps.bands)
        query = seen.open(questions["network class means"])
        deviations, _ = class_deviations(query, common, NETWORK_BOUNDS[1], maps.bands)
        return ClassMaps(maps, common + deviations)

    def _train_teacher(
        self,
        private: PrivateImages,
        mechanism: GaussianSum,
        sampler: MixtureSampler,
        fixed: Features,
        *,
        affine: bool = False,
    ) -> LinearTeacher:
        """DP-SGD on a linear head (Tramer and Boneh 2021); its features are fixed, so they are computed once.

        The features are whitened by statistics of sampled images, which cost no privacy.
        """
        spec = private.spec
        labels = torch.arange(WHITENING_IMAGES) % len(spec.classes)
        examples = [sampler(part, details=2 - n % 3) for n, part in enumerate(torch.split(labels, CHUNK))]
        features = WhitenedFeatures(fixed, torch.cat(examples), level=self.whitening_level, affine=affine)
        private_features = private.mapped(lambda image: features(image[None])[0])
        head = LinearHead(math.prod(features.shape), len(spec.classes))
        descent = Descent(self.l2_bound, self.rate)
        descend(private_features.open(mechanism), head, lambda _: _cross_entropy, descent, what="teacher")
        return LinearTeacher(features, head)


def _large_enough(spec: Spec) -> bool:
    """Whether photographs of this size have fine structure."""
    return min(spec.height, spec.width) >= SMALLEST_PHOTOGRAPH


def _in_colour(spec: Spec) -> bool:
    """Whether the images are photographs by public facts alone; of grey ones their tones decide, which are asked."""
    return spec.channels == 3 and _large_enough(spec)


def _cross_entropy(model: Callable[..., Tensor], features: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(features[None]), label[None])
