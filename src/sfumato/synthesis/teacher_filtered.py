"""Images that a teacher of the private classes selects and labels: class images and a distillation set.

Class images: several candidates are sampled from the mixture of a class, and the teacher selects one, so that image and
label agree. Distillation set: further sampled images and procedural ones, with the teacher's logits. Photographs are
treated otherwise, because mixtures hold too little of them: the distillation set is procedural, and unless photographs
are aligned, so are the class images. Where it is known what a public network sees in the images of each class, the
first class images are found by that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.networks.linear_teacher import LinearTeacher
from sfumato.networks.network_maps import NetworkMaps
from sfumato.progress import track
from sfumato.synthesis.inversion import inverted
from sfumato.synthesis.mixture_sampler import MixtureSampler, quantised
from sfumato.values import Images, Spec

CHUNK = 500  # images sampled and labelled at a time
NETWORK_CHUNK = 64  # images at a time through a public network
NETWORK_RATIO = 3  # images for each feature of the public network; a student needs more than 1
MOST_INVERTED_EACH, MOST_INVERTED = 12, 120  # class images that are inverted, of a class and in all: it takes long
LEAST_NETWORK_IMAGES = 4_000
HYBRID_SHARE = 0.6  # of the distillation set of aligned photographs
ALIGNMENT_IMAGES = 500  # sampled images that show whether the private ones are aligned
ALIGNED = 0.12  # 0.03 to 0.05 of CIFAR-10, 0.2 to 0.4 of faces

ProceduralImages = Callable[[int, torch.Generator], Tensor]  # so many images (n, c, h, w) uint8, drawn so


@dataclass(frozen=True)
class Amounts:
    """How many images are made for each class image."""

    candidates: int  # sampled, of which the teacher selects one
    transfer_ratio: int  # in the distillation set
    procedural_share: float  # of the distillation set, unless the images are photographs


@dataclass(frozen=True)
class NetworkTeacher:
    """A second teacher, that sees through a public network, and the name of the network."""

    teacher: LinearTeacher
    network: str


def _alignment(sampler: MixtureSampler, classes: int) -> float:
    """How much of the structure of sampled images all of them share: much of faces, little of scenes; from 0 to 1."""
    images = sampler(torch.arange(ALIGNMENT_IMAGES) % classes, details=0).float()
    structure = images - images.mean((2, 3), keepdim=True)
    return float(structure.mean(0).square().mean() / structure.square().mean().clamp(min=1e-9))


def _blurred(images: Tensor) -> Tensor:
    """Without the details that image codes of scenes do not hold."""
    width = 2 * round(max(images.shape[2:]) / 14) + 1
    for _ in range(2):
        images = F.avg_pool2d(F.pad(images, (width // 2,) * 4, mode="replicate"), width, stride=1)
    return images


def _likeliest(logits: Tensor, labels: Tensor) -> Tensor:
    """For each label the number of an image, among those that are likeliest to be of its class, each at most once."""
    probabilities = logits.softmax(1)
    numbers = torch.empty_like(labels)
    for label in range(logits.shape[1]):
        wanted = labels == label
        numbers[wanted] = probabilities[:, label].topk(int(wanted.sum())).indices
    return numbers


@dataclass(frozen=True)
class ClassMaps:
    """What a public network sees where, and its mean of each class (k, d)."""

    maps: NetworkMaps
    means: Tensor


class TeacherFilteredSampler:
    """The sampler: class images selected by the teacher among candidates, and a distillation set with its logits."""

    def __init__(
        self,
        amounts: Amounts,
        spec: Spec,
        sampler: MixtureSampler,
        procedural: ProceduralImages,
        teacher: LinearTeacher,
        network_teacher: NetworkTeacher | None,
        class_maps: ClassMaps | None,
        public: Tensor | None,
        *,
        photographs: bool,
    ) -> None:
        self.amounts = amounts
        self.spec = spec
        self.sampler = sampler
        self.procedural = procedural
        self.teacher = teacher
        self.network_teacher = network_teacher
        self.class_maps = class_maps
        self.public = public
        self.draw = sampler.draw
        self.photographs = photographs
        # Mixtures of photographs that are not aligned are shapeless: procedural images are better class images.
        self.sampled_classes = not photographs or _alignment(sampler, len(spec.classes)) > ALIGNED

    @torch.no_grad()
    def __call__(self, labels: Tensor) -> Images:
        # Filled a chunk at a time: chunks that are put together at the end would be in memory twice.
        ratio, start = self.amounts.transfer_ratio, 0
        class_images = torch.empty(len(labels) if self.sampled_classes else 0, *self.spec.shape, dtype=torch.uint8)
        pixels = torch.empty(ratio * len(labels), *self.spec.shape, dtype=torch.uint8)
        logits = torch.empty(ratio * len(labels), len(self.spec.classes))
        chunks = torch.split(labels, CHUNK)
        for chunk in track(chunks, what="images", total=len(chunks)):
            end = start + len(chunk)
            class_images[start:end], pixels[ratio * start : ratio * end], logits[ratio * start : ratio * end] = (
                self._chunk(chunk)
            )
            start = end
        if not self.sampled_classes:
            class_images = pixels[_likeliest(logits, labels)]
        if self.class_maps is not None and self.photographs:
            self._invert_first(class_images, labels, self.class_maps)
        distillation = Images(pixels, logits.argmax(1), self.spec.classes, logits)
        network = None if self.network_teacher is None else self._for_network(self.network_teacher)
        return Images(class_images, labels, self.spec.classes, transfer=distillation, network=network)

    def _invert_first(self, class_images: Tensor, labels: Tensor, known: ClassMaps) -> None:
        """Replace the first class images of each class, which previews show, by those that the network's means give."""
        each = max(1, min(MOST_INVERTED_EACH, MOST_INVERTED // len(self.spec.classes)))
        first = torch.cat([(labels == number).nonzero()[:each, 0] for number in range(len(self.spec.classes))])
        start = self.sampler(labels[first], details=0).float() / 255
        class_images[first] = quantised(inverted(start, labels[first], known.means, known.maps, self.draw))

    def _for_network(self, seeing: NetworkTeacher) -> Images:
        """Sampled and procedural images, half and half, with the logits of the teacher that sees through a network."""
        teacher = seeing.teacher
        count = max(LEAST_NETWORK_IMAGES, NETWORK_RATIO * teacher.head.linear.in_features)
        chunks = torch.split(torch.arange(count // 2) % len(self.spec.classes), NETWORK_CHUNK // 2)
        pixels, logits = [], []
        for number, labels in enumerate(track(chunks, what="images for the public network", total=len(chunks))):
            sampled = self.sampler(labels, details=number % 3)
            pixels.append(torch.cat([sampled, self._procedural(len(labels))]))
            logits.append(teacher(pixels[-1]))
        answers = torch.cat(logits)
        return Images(torch.cat(pixels), answers.argmax(1), self.spec.classes, answers, seen_through=seeing.network)

    def _chunk(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One class image for each label, where they are sampled; images of the distillation set, and their logits."""
        if self.photographs:
            pixels = self._for_photographs(labels.repeat(self.amounts.transfer_ratio))
            class_images = self._selected(*self._candidates(labels), labels) if self.sampled_classes else pixels[:0]
            return class_images, pixels, self._logits(pixels)
        candidates, logits = self._candidates(labels)
        return self._selected(candidates, logits, labels), *self._distillation_set(candidates, logits)

    def _candidates(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Several sampled images for each label, those with most detail first, and their logits: (m, n, ...)."""
        most = self.amounts.candidates
        count = most if self.photographs else max(most, self.amounts.transfer_ratio)
        sampled = [self.sampler(labels, details=self._details(2 - 3 * n // most % 3)) for n in range(count)]
        candidates = torch.stack(sampled)
        logits = self._logits(candidates.flatten(0, 1)).reshape(count, len(labels), -1)
        return candidates, logits

    def _for_photographs(self, labels: Tensor) -> Tensor:
        """Procedural images; where photographs are aligned, most of them with the coarse part of sampled ones."""
        images = self._procedural(len(labels))
        mixed = (torch.rand(len(labels), generator=self.draw) < HYBRID_SHARE).nonzero()[:, 0]
        if self.sampled_classes and len(mixed):
            fine = images[mixed].float() / 255
            coarse = self.sampler(labels[mixed], details=0).float() / 255
            amount = torch.rand(len(mixed), 1, 1, 1, generator=self.draw)
            images[mixed] = quantised((coarse + amount * (fine - _blurred(fine))).clamp(0, 1))
        return images

    def _details(self, wanted: int) -> int:
        """How often procedural detail is added: never to photographs, which it would cover."""
        return 0 if self.photographs else wanted

    def _selected(self, candidates: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """One candidate for each label, drawn by the probability that the teacher gives the label."""
        images = torch.arange(len(labels))
        probabilities = logits[: self.amounts.candidates].softmax(2)[:, images, labels]  # (m, n)
        selected = torch.multinomial(probabilities.T + 1e-6, 1, generator=self.draw)[:, 0]
        return candidates[selected, images]

    def _distillation_set(self, candidates: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The first candidates, a random part of them replaced by procedural images; and their logits."""
        labels = candidates.shape[1]
        numbers = torch.arange(self.amounts.transfer_ratio * labels)
        kept = numbers[torch.rand(len(numbers), generator=self.draw) >= self.amounts.procedural_share]
        places = (kept // labels, kept % labels)
        procedural = self._procedural(len(numbers) - len(kept))
        return (
            torch.cat([candidates[places], procedural]),
            torch.cat([logits[places], self._logits(procedural)]),
        )

    def _procedural(self, count: int) -> Tensor:
        """Procedural images; where there are public images, half of them are public images instead."""
        if self.public is None:
            return self.procedural(count, self.draw)
        public = self.public[torch.randint(len(self.public), (count // 2,), generator=self.draw)]
        return torch.cat([self.procedural(count - len(public), self.draw), public])

    def _logits(self, pixels: Tensor) -> Tensor:
        if not len(pixels):
            return torch.zeros(0, len(self.spec.classes))
        return torch.cat([self.teacher(part) for part in torch.split(pixels, CHUNK)])
