"""P3GM (Takagi, Takahashi, Cao, Yoshikawa 2021): private PCA encodes, a private mixture draws, a decoder paints.

Phase 1 fixes the encoder by PCA of noisy second moments, then fits a mixture of Gaussians to the latents by DP-EM
(Park et al. 2017), here one for each class. Phase 2 fits the decoder: a network by DP-SGD, or none but the transpose
of the PCA, which costs nothing. The public code centres PCA on the exact mean of the private data, which stays in the
model, and clips means over microbatches, which one record can move by twice the bound. Here images have a public
centre, their mean is part of the noisy moments, and every row of every phase is bounded and charged to one ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages, Query, noisy_gradient
from sfumato.progress import track
from sfumato.synthesis import moments
from sfumato.synthesis.embedding import class_sizes
from sfumato.synthesis.moments import shortened, unpacked
from sfumato.values import Images, Spec

CHANNEL_FREQUENCY = 5  # how many waves across an image a difference of colours counts as
FLOOR, SPLIT = 1e-3, 0.7  # least variance, in parts of the mean one; how far apart components begin, in deviations
GATHERED, CHUNK = 1 << 24, 1_000  # values of covariances beside a microbatch of records, images sampled at a time


@dataclass(frozen=True)
class P3GM(Synthesizer):
    """Hyperparameters, all public; shares are relative, and a part that is not used is not paid for."""

    coefficients: int = 300  # of the longest cosine waves, which PCA sees; up to 630, for fewer than 200,000 moments
    latent: int = 30
    centre: float = 0.25
    reach: float = 0.33  # longest centred image, times the square root of the number of pixels
    radius: float = 1.3  # longest latent, times the square root of their variance
    constant: float = 0.5  # beside a vector, times its bound: weighs counts and means against squares
    components: int = 1  # of each class
    rounds: int = 3  # of DP-EM, beside the one that measures classes
    decoder: str = "linear"  # or "network", trained by DP-SGD on top of it, which is worse at epsilon 1
    steps: int = 300  # of DP-SGD
    sampling: float = 0.03
    hidden: int = 100
    jitter: float = 0.1  # noise on the latents that teach the decoder, in standard deviations
    l2_bound: float = 1.0
    learning_rate: float = 0.5
    pca_share: float = 0.4
    em_share: float = 0.6
    decoder_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.decoder not in ("linear", "network"):
            raise UsageError(f"Expected decoder as linear or network, got {self.decoder!r}.")
        limits = {
            "coefficients": (1, 630),
            "latent": (1, 200),
            "centre": (0, 1),
            "components": (1, 100),
            "rounds": (1, 1_000),
            "steps": (1, 10**6),
            "sampling": (1e-9, 1),
            "hidden": (1, 10_000),
            "jitter": (0, 1e9),
            "seed": (0, 2**31 - 1),
        }
        others = {name: (1e-9, 1e9) for name in asdict(self) if name != "decoder"}
        expect_within(self, **{**others, **limits})

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # A component that is mostly noise teaches nothing: at epsilon 1, of 5,000 records one was as good as three.
        each = min(spec.count / len(spec.classes) * budget.epsilon / 6_000, 10.0)
        return cls(components=max(1, round(each)), sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        rounds = 1 + self.rounds if self.components > 1 else 1
        planned = [GaussianSum(share=self.pca_share), GaussianSum(rounds=rounds, share=self.em_share)]
        if self.decoder == "network":
            planned.append(GaussianSum(rounds=self.steps, sampling=self.sampling, share=self.decoder_share))
        return planned

    def seconds(self, spec: Spec) -> float:
        seen = self.steps * self.sampling if self.decoder == "network" else 0.0
        each = 5e-9 * self.coefficients**2 + 1e-8 * self.rounds * self.components * self.latent**2
        return 5 + spec.count * (each + 1e-7 * spec.pixels * (2 + seen))

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        pca, em, *sgd = private.ledger.calibrate(*self.plan(private.spec))
        encoder = self._encode(private, pca)  # phase 1: f(x)
        mixture, decoder = self._mix(private, em, encoder), Painter(encoder, self.hidden, self.seed)  # p(z), g(z)
        if sgd:  # phase 2
            self._train(private, sgd[0], decoder)
        return Sampled(mixture, decoder.requires_grad_(False), private.spec, self.seed + 1)

    def _encode(self, private: PrivateImages, mechanism: GaussianSum) -> Encoder:
        """PCA of a publicly centred image, of which one noisy sum holds mean and second moments."""
        waves = cosine_waves(private.spec.shape, self.coefficients)  # (d, pixels)
        longest = self.reach * math.sqrt(private.spec.pixels)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            return packed(shortened(waves @ (image.flatten() - self.centre), longest), self.constant * longest)

        query, bound = private.open(mechanism, purpose="second moments"), longest**2 * (1 + self.constant**2)
        found = gaussians(query(contribution, l2_bound=bound), self.constant * longest, query, bound)
        values, directions = spikes(found.covariances, float(found.noise))
        kept = max(1, min(self.latent, int((values > 0).sum())))
        values = values[:kept].clamp(min=max(FLOOR * float(values[0]), 1e-6)).float()
        return Encoder(self, waves, found.means.float(), directions[:, :kept].float(), values)

    def _mix(self, private: PrivateImages, mechanism: GaussianSum, encoder: Encoder) -> Mixture:
        """DP-EM: expectation in the rows, maximisation on their noisy sums; first with one component."""
        least, one = FLOOR * float(encoder.variances.mean()), self.constant * encoder.longest
        bound = encoder.longest**2 + one**2
        batch = max(16, min(4096, GATHERED // (self.components * self.latent**2)))
        query = private.open(mechanism, purpose="mixture", microbatch=batch)

        def ask(believed: Callable[[Tensor, Tensor], Tensor]) -> Mixture:
            def contribution(image: Tensor, label: Tensor) -> Tensor:
                z = encoder(image)
                return believed(z, label)[:, None] * packed(z, one)  # sum_j r_j^2 <= 1 keeps the bound

            return gaussians(query.per_class(contribution, l2_bound=bound), one, query, bound)

        classes = mixture = whole_classes(ask(lambda z, label: z.new_ones(1)), one, least)
        if self.components > 1:
            mixture = scattered(classes, self.components, torch.Generator().manual_seed(self.seed))
            for _ in track(range(self.rounds), what="DP-EM", total=self.rounds):
                mixture = maximised(ask(beliefs(mixture)), classes, one, least)
        return mixture

    def _train(self, private: PrivateImages, mechanism: GaussianSum, decoder: Painter) -> None:
        """DP-SGD on |x - g(f(x) + noise)|^2, in the coefficients that PCA sees."""
        encoder, query = decoder.encoder, private.open(mechanism, purpose="decoder")
        optimizer = torch.optim.SGD(decoder.parameters(), self.learning_rate, momentum=0.9)
        draw = torch.Generator().manual_seed(self.seed)
        for _ in track(range(rounds := query.rounds), what="decoder", total=rounds):
            # One draw for all records of a round: a row stays a function of its record.
            noise = self.jitter * encoder.variances.sqrt() * torch.randn(len(encoder.variances), generator=draw)

            def loss(g: Callable[..., Tensor], image: Tensor, label: Tensor, noise: Tensor = noise) -> Tensor:
                coefficients = encoder.waves @ (image.flatten() - encoder.centre) - encoder.mean
                return (g((encoder(image) + noise)[None])[0] - coefficients).square().sum() / encoder.longest**2

            noisy_gradient(query, decoder, loss, l2_bound=self.l2_bound)
            optimizer.step()


def cosine_waves(shape: tuple[int, int, int], count: int) -> Tensor:
    """The longest waves of the orthonormal cosine transform over colours, rows and columns: (d, pixels)."""
    c, u, v = (w.flatten() for w in torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij"))
    order = ((CHANNEL_FREQUENCY * c) ** 2 + u**2 + v**2).argsort(stable=True)[:count]
    along = []
    for size, wave in zip(shape, (w[order, None] for w in (c, u, v)), strict=True):
        scale = torch.where(wave == 0, 1.0, 2.0).div(size).sqrt()
        along.append(scale * torch.cos(math.pi / size * wave * (torch.arange(size) + 0.5)))  # (d, size)
    return torch.einsum("dc,dh,dw->dchw", *along).flatten(1)


def packed(x: Tensor, one: float) -> Tensor:
    """u u^T of u = (x, one), each entry once, as a row of norm |u|^2."""
    return moments.packed(torch.cat([x, x.new_full((1,), one)]))


def spikes(noisy: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues, the largest first, and eigenvectors of a matrix that has noise of that size off its diagonal."""
    values, vectors = torch.linalg.eigh(noisy)
    edge = 2 * noise * math.sqrt(len(noisy))  # of noise alone; beyond, Donoho, Gavish and Johnstone (2018) err least
    return torch.where(values > edge, values.square() - edge**2, 0.0).sqrt().flip(0), vectors.flip(1)


def positive(matrices: Tensor, least: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrices)
    return cast(Tensor, (vectors * values.clamp(min=least)[..., None, :]) @ vectors.mT)


def towards(prior: Tensor, found: Tensor, noise: Tensor, *, dims: int) -> Tensor:
    """James and Stein (1961): what differs from a prior counts by how far it is above its noise."""
    apart = (found - prior).flatten(-dims)
    keep = (1 - noise.square() * apart.shape[-1] / apart.square().sum(-1).clamp(min=1e-30)).clamp(min=0)
    return prior + (keep[..., None] * apart).reshape(found.shape)


class Encoder:
    """f(x): the latent of an image, never longer than `longest`; and what leads back."""

    def __init__(self, method: P3GM, waves: Tensor, mean: Tensor, directions: Tensor, variances: Tensor) -> None:
        self.centre, self.longest = method.centre, method.radius * float(variances.sum().sqrt())
        self.waves, self.mean, self.directions, self.variances = waves, mean, directions, variances
        self._across, self._offset = directions.T @ waves, directions.T @ mean

    def __call__(self, image: Tensor) -> Tensor:
        return shortened(self._across @ (image.flatten() - self.centre) - self._offset, self.longest)


class Mixture(NamedTuple):
    """Of each class; where it is out of noisy sums, `noise` is the standard deviation of a covariance."""

    sizes: Tensor  # (k, j)
    means: Tensor  # (k, j, latent)
    covariances: Tensor  # (k, j, latent, latent)
    noise: Tensor  # (k, j)


def gaussians(sums: Tensor, one: float, query: Query, bound: float) -> Mixture:
    """Out of noisy sums of packed rows; the noise is that much on the diagonal, and 1 / sqrt(2) of it elsewhere."""
    found, noise = unpacked(sums), (query.mechanism.noise_multiplier or 0.0) * bound
    sizes = class_sizes(found[..., -1, -1], share=one**4, noise=noise)
    means, seconds = found[..., :-1, -1] / (one * sizes[..., None]), found[..., :-1, :-1] / sizes[..., None, None]
    return Mixture(sizes, means, seconds - means[..., :, None] * means[..., None, :], noise / math.sqrt(2) / sizes)


def whole_classes(found: Mixture, one: float, least: float) -> Mixture:
    """One Gaussian for each class; what is mostly noise gives way to the common mean and covariance."""
    means = towards(torch.zeros_like(found.means), found.means, found.noise / one, dims=1)
    parts = found.sizes / found.sizes.sum()
    pooled = (parts[..., None, None] * found.covariances).sum((0, 1))
    values, vectors = spikes(pooled, float((parts * found.noise).norm()))
    common = ((vectors * values) @ vectors.T).expand_as(found.covariances)
    covariances = positive(towards(common, found.covariances, found.noise, dims=2), least)
    return Mixture(found.sizes, means, covariances, found.noise)


def scattered(classes: Mixture, components: int, draw: torch.Generator) -> Mixture:
    """Where EM begins: means drawn from the class's Gaussian, which leaves the rest of its covariance to each."""
    apart = torch.randn(len(classes.means), components, classes.means.shape[2], 1, generator=draw, dtype=torch.float64)
    means = classes.means + SPLIT * (torch.linalg.cholesky(classes.covariances) @ apart)[..., 0]
    covariances = (1 - SPLIT**2) * classes.covariances.expand(-1, components, -1, -1)
    return Mixture(classes.sizes.expand(-1, components), means, covariances, classes.noise)


def maximised(found: Mixture, classes: Mixture, one: float, least: float) -> Mixture:
    """Components whose means and covariances add up to those of their class, as far as they were not measured."""
    means = towards(classes.means.expand_as(found.means), found.means, found.noise / one, dims=1)
    weights, apart = found.sizes / found.sizes.sum(1, keepdim=True), means - classes.means
    between = torch.einsum("kj,kja,kjb->kab", weights, apart, apart)[:, None]
    within = positive(classes.covariances - between, least).expand_as(found.covariances)
    covariances = positive(towards(within, found.covariances, found.noise, dims=2), least)
    return Mixture(found.sizes, means, covariances, found.noise)


def beliefs(mixture: Mixture) -> Callable[[Tensor, Tensor], Tensor]:
    """r_j(z): how likely each component of its class made a latent."""
    whiten = torch.linalg.inv(torch.linalg.cholesky(mixture.covariances))
    prior = (mixture.sizes.log() + whiten.diagonal(dim1=-2, dim2=-1).log().sum(-1)).float()
    whiten, means = whiten.float(), mixture.means.float()

    def believed(z: Tensor, label: Tensor) -> Tensor:  # (latent,), () -> (j,)
        away = whiten[label] @ (z - means[label])[..., None]
        return cast(Tensor, prior[label] - away.square().sum((-2, -1)) / 2).softmax(-1)

    return believed


class Painter(nn.Module):
    """g(z): the linear decoder plus a small network, which begins as nothing."""

    def __init__(self, encoder: Encoder, hidden: int, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(len(encoder.variances), hidden)
            self.last = nn.Linear(hidden, len(encoder.mean), bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, z: Tensor) -> Tensor:  # (b, latent) -> (b, d), coefficients without their mean
        bent: Tensor = self.last(self.first(z / self.encoder.variances.sqrt()).relu())
        return z @ self.encoder.directions.T + bent

    def paint(self, z: Tensor) -> Tensor:  # (b, latent) -> (b, pixels)
        return cast(Tensor, (self(z) + self.encoder.mean) @ self.encoder.waves + self.encoder.centre).clamp(0, 1)


class Sampled:
    """The sampler: label to component to latent to image; holds what was learnt and its own randomness."""

    def __init__(self, mixture: Mixture, decoder: Painter, spec: Spec, seed: int) -> None:
        self._mixture, self._decoder, self._spec = mixture, decoder, spec
        self._factors, self._draw = torch.linalg.cholesky(mixture.covariances), torch.Generator().manual_seed(seed)

    def __call__(self, labels: Tensor) -> Images:
        made = []
        for chunk in torch.split(labels, CHUNK):
            at = chunk, torch.multinomial(self._mixture.sizes[chunk], 1, generator=self._draw)[:, 0]
            drawn = torch.randn(len(chunk), self._factors.shape[-1], 1, generator=self._draw, dtype=torch.float64)
            images = self._decoder.paint((self._mixture.means[at] + (self._factors[at] @ drawn)[..., 0]).float())
            made.append(images.mul(255).round().to(torch.uint8).reshape(-1, *self._spec.shape))
        return Images(torch.cat(made), labels, self._spec.classes)
