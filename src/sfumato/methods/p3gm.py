"""P3GM (Takagi, Takahashi, Cao, Yoshikawa 2021): private PCA as encoder, a private mixture of latents, a decoder.

Phase 1 determines the encoder by PCA of noisy second moments, then fits a mixture of Gaussians to the latents by DP-EM
(Park et al. 2017), here one for each class. Phase 2 fits the decoder: a network by DP-SGD, or just the transpose of
the PCA, which costs no privacy. The public code centres PCA on the exact mean of the private data, which stays in the
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
from sfumato.errors import expect_one_of, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages, Query, noisy_gradient
from sfumato.progress import track
from sfumato.synthesis import moments
from sfumato.synthesis.embedding import class_sizes
from sfumato.synthesis.moments import clipped, unpacked
from sfumato.values import Images, Spec

CHANNEL_FREQUENCY = 5  # the spatial frequency that a difference between colour channels is ranked with
FLOOR = 1e-3  # least variance, relative to the mean variance
SPLIT = 0.7  # spread of the initial means of components, in standard deviations of the class
GATHERED = 1 << 24  # covariance entries held for a microbatch of records
CHUNK = 1_000  # images sampled at a time


@dataclass(frozen=True)
class P3GM(Synthesizer):
    """Hyperparameters, all public; shares are relative, and a phase that is not used costs nothing."""

    coefficients: int = 300  # lowest cosine frequencies, the input of PCA; up to 630, for fewer than 200,000 moments
    latent: int = 30
    centre: float = 0.25
    reach: float = 0.33  # clipping bound of a centred image, in units of sqrt(number of pixels)
    radius: float = 1.3  # clipping bound of a latent, in units of the square root of the total variance
    constant: float = (
        0.5  # appended to a vector, relative to its bound: weight of counts and means against second moments
    )
    components: int = 1  # of each class
    rounds: int = 3  # of DP-EM, after the one that measures whole classes
    decoder: str = "linear"  # or "network": linear plus a network trained by DP-SGD; worse at epsilon 1
    steps: int = 300  # of DP-SGD
    sampling: float = 0.03
    hidden: int = 100
    jitter: float = 0.1  # noise on the latents in training of the decoder, in standard deviations
    l2_bound: float = 1.0
    learning_rate: float = 0.5
    pca_share: float = 0.4
    em_share: float = 0.6
    decoder_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, decoder=("linear", "network"))
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
        # A component that is mostly noise is useless: at epsilon 1, with 5,000 records, one was as good as three.
        each = min(spec.count / len(spec.classes) * budget.epsilon / 6_000, 10.0)
        return cls(components=max(1, round(each)), sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        rounds = 1 + self.rounds if self.components > 1 else 1
        pca = GaussianSum(share=self.pca_share, purpose="how images vary around their mean, over all classes")
        em = GaussianSum(rounds=rounds, share=self.em_share, purpose="mean and spread of compressed images, by class")
        if self.decoder == "linear":
            return [pca, em]
        sgd = GaussianSum(
            rounds=self.steps, sampling=self.sampling, share=self.decoder_share, purpose="gradients of the decoder"
        )
        return [pca, em, sgd]

    def seconds(self, spec: Spec) -> float:
        seen = self.steps * self.sampling if self.decoder == "network" else 0.0
        each = 5e-9 * self.coefficients**2 + 1e-8 * self.rounds * self.components * self.latent**2
        return 5 + spec.count * (each + 1e-7 * spec.pixels * (2 + seen))

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        pca, em, *sgd = private.ledger.calibrate(*self.plan(private.spec))
        encoder = self._fit_encoder(private, pca)  # phase 1: f(x)
        mixture = self._fit_mixture(private, em, encoder)  # p(z)
        decoder = Decoder(encoder, self.hidden, self.seed)  # g(z)
        if sgd:  # phase 2
            self._train(private, sgd[0], decoder)
        return LatentSampler(mixture, decoder.requires_grad_(False), private.spec, self.seed + 1)

    def _fit_encoder(self, private: PrivateImages, mechanism: GaussianSum) -> Encoder:
        """PCA from one noisy sum of first and second moments of images, which are centred by a public constant."""
        waves = cosine_waves(private.spec.shape, self.coefficients)  # (d, pixels)
        longest = self.reach * math.sqrt(private.spec.pixels)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            return packed(clipped(waves @ (image.flatten() - self.centre), longest), self.constant * longest)

        query = private.open(mechanism)
        bound = longest**2 * (1 + self.constant**2)
        found = mixture_from_sums(query(contribution, l2_bound=bound), self.constant * longest, query, bound)
        values, directions = denoised_eigenvalues(found.covariances, float(found.noise))
        kept = max(1, min(self.latent, int((values > 0).sum())))
        values = values[:kept].clamp(min=max(FLOOR * float(values[0]), 1e-6)).float()
        return Encoder(self, waves, found.means.float(), directions[:, :kept].float(), values)

    def _fit_mixture(self, private: PrivateImages, mechanism: GaussianSum, encoder: Encoder) -> LatentMixture:
        """DP-EM: the E step within rows, the M step on noisy sums; the first round with one component."""
        least = FLOOR * float(encoder.variances.mean())
        one = self.constant * encoder.longest
        bound = encoder.longest**2 + one**2
        batch = max(16, min(4096, GATHERED // (self.components * self.latent**2)))
        query = private.open(mechanism, microbatch=batch)

        def ask(responsibility: Callable[[Tensor, Tensor], Tensor]) -> LatentMixture:
            def contribution(image: Tensor, label: Tensor) -> Tensor:
                z = encoder(image)
                return responsibility(z, label)[:, None] * packed(z, one)  # sum_j r_j^2 <= 1 keeps the bound

            return mixture_from_sums(query.per_class(contribution, l2_bound=bound), one, query, bound)

        classes = mixture = class_gaussians(ask(lambda z, label: z.new_ones(1)), one, least)
        if self.components > 1:
            mixture = initial_components(classes, self.components, torch.Generator().manual_seed(self.seed))
            for _ in track(range(self.rounds), what="DP-EM", total=self.rounds):
                mixture = m_step(ask(responsibilities(mixture)), classes, one, least)
        return mixture

    def _train(self, private: PrivateImages, mechanism: GaussianSum, decoder: Decoder) -> None:
        """DP-SGD on |x - g(f(x) + noise)|^2, in the coefficients that PCA sees."""
        encoder = decoder.encoder
        query = private.open(mechanism)
        optimizer = torch.optim.SGD(decoder.parameters(), self.learning_rate, momentum=0.9)
        draw = torch.Generator().manual_seed(self.seed)
        for _ in track(range(query.rounds), what="decoder", total=query.rounds):
            # One draw for all records of a round, so that a row is a function of its record alone.
            noise = self.jitter * encoder.variances.sqrt() * torch.randn(len(encoder.variances), generator=draw)

            def loss(g: Callable[..., Tensor], image: Tensor, label: Tensor, noise: Tensor = noise) -> Tensor:
                coefficients = encoder.waves @ (image.flatten() - encoder.centre) - encoder.mean
                return (g((encoder(image) + noise)[None])[0] - coefficients).square().sum() / encoder.longest**2

            noisy_gradient(query, decoder, loss, l2_bound=self.l2_bound)
            optimizer.step()


def cosine_waves(shape: tuple[int, int, int], count: int) -> Tensor:
    """The lowest frequencies of the orthonormal cosine transform over channels, rows and columns: (d, pixels)."""
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


def denoised_eigenvalues(noisy: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Shrunk eigenvalues, the largest first, and eigenvectors of a matrix with this standard deviation of noise."""
    values, vectors = moments.eigen(noisy)
    edge = (
        2 * noise * math.sqrt(len(noisy))
    )  # of pure noise; above it the shrinkage of Donoho, Gavish and Johnstone (2018)
    return torch.where(values > edge, values.square() - edge**2, 0.0).sqrt().flip(0), vectors.flip(1)


def positive_definite(matrices: Tensor, least: float) -> Tensor:
    values, vectors = moments.eigen(matrices)
    return (vectors * values.clamp(min=least)[..., None, :]) @ vectors.mT


def shrunk_towards(prior: Tensor, found: Tensor, noise: Tensor, *, dims: int) -> Tensor:
    """James-Stein (1961) shrinkage towards a prior, by how far the difference exceeds its noise."""
    difference = (found - prior).flatten(-dims)
    keep = (1 - noise.square() * difference.shape[-1] / difference.square().sum(-1).clamp(min=1e-30)).clamp(min=0)
    return prior + (keep[..., None] * difference).reshape(found.shape)


class Encoder:
    """f(x): the latent of an image, clipped to the length `longest`; and what the decoder needs to invert it."""

    def __init__(self, method: P3GM, waves: Tensor, mean: Tensor, directions: Tensor, variances: Tensor) -> None:
        self.centre, self.longest = method.centre, method.radius * float(variances.sum().sqrt())
        self.waves, self.mean, self.directions, self.variances = waves, mean, directions, variances
        self._across, self._offset = directions.T @ waves, directions.T @ mean

    def __call__(self, image: Tensor) -> Tensor:
        return clipped(self._across @ (image.flatten() - self.centre) - self._offset, self.longest)


class LatentMixture(NamedTuple):
    """The components of each class; `noise` is the standard deviation of the noise in a covariance entry."""

    sizes: Tensor  # (k, j)
    means: Tensor  # (k, j, latent)
    covariances: Tensor  # (k, j, latent, latent)
    noise: Tensor  # (k, j)


def mixture_from_sums(sums: Tensor, one: float, query: Query, bound: float) -> LatentMixture:
    """From noisy sums of packed rows; the noise off the diagonal is 1 / sqrt(2) of that on it."""
    found, noise = unpacked(sums), (query.mechanism.noise_multiplier or 0.0) * bound
    sizes = class_sizes(found[..., -1, -1], share=one**4, noise=noise)
    means, seconds = found[..., :-1, -1] / (one * sizes[..., None]), found[..., :-1, :-1] / sizes[..., None, None]
    return LatentMixture(
        sizes, means, seconds - means[..., :, None] * means[..., None, :], noise / math.sqrt(2) / sizes
    )


def class_gaussians(found: LatentMixture, one: float, least: float) -> LatentMixture:
    """One Gaussian for each class, shrunk towards the common mean and covariance."""
    means = shrunk_towards(torch.zeros_like(found.means), found.means, found.noise / one, dims=1)
    parts = found.sizes / found.sizes.sum()
    pooled = (parts[..., None, None] * found.covariances).sum((0, 1))
    values, vectors = denoised_eigenvalues(pooled, float((parts * found.noise).norm()))
    common = ((vectors * values) @ vectors.T).expand_as(found.covariances)
    covariances = positive_definite(shrunk_towards(common, found.covariances, found.noise, dims=2), least)
    return LatentMixture(found.sizes, means, covariances, found.noise)


def initial_components(classes: LatentMixture, components: int, draw: torch.Generator) -> LatentMixture:
    """Initial components: means drawn from the Gaussian of the class, each with the rest of its covariance."""
    drawn = torch.randn(len(classes.means), components, classes.means.shape[2], 1, generator=draw, dtype=torch.float64)
    means = classes.means + SPLIT * (torch.linalg.cholesky(classes.covariances) @ drawn)[..., 0]
    covariances = (1 - SPLIT**2) * classes.covariances.expand(-1, components, -1, -1)
    return LatentMixture(classes.sizes.expand(-1, components), means, covariances, classes.noise)


def m_step(found: LatentMixture, classes: LatentMixture, one: float, least: float) -> LatentMixture:
    """The M step: noisy components, shrunk towards ones that together have the mean and covariance of the class."""
    means = shrunk_towards(classes.means.expand_as(found.means), found.means, found.noise / one, dims=1)
    weights = found.sizes / found.sizes.sum(1, keepdim=True)
    offsets = means - classes.means
    between = torch.einsum("kj,kja,kjb->kab", weights, offsets, offsets)[:, None]
    within = positive_definite(classes.covariances - between, least).expand_as(found.covariances)
    covariances = positive_definite(shrunk_towards(within, found.covariances, found.noise, dims=2), least)
    return LatentMixture(found.sizes, means, covariances, found.noise)


def responsibilities(mixture: LatentMixture) -> Callable[[Tensor, Tensor], Tensor]:
    """r_j(z): the posterior probability of each component of its class, for a latent."""
    whiten = torch.linalg.inv(torch.linalg.cholesky(mixture.covariances))
    prior = (mixture.sizes.log() + whiten.diagonal(dim1=-2, dim2=-1).log().sum(-1)).float()
    whiten, means = whiten.float(), mixture.means.float()

    def responsibility(z: Tensor, label: Tensor) -> Tensor:  # (latent,), () -> (j,)
        whitened = whiten[label] @ (z - means[label])[..., None]
        return cast(Tensor, prior[label] - whitened.square().sum((-2, -1)) / 2).softmax(-1)

    return responsibility


class Decoder(nn.Module):
    """g(z): the linear decoder plus a small network, whose output is zero before training."""

    def __init__(self, encoder: Encoder, hidden: int, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(len(encoder.variances), hidden)
            self.last = nn.Linear(hidden, len(encoder.mean), bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, z: Tensor) -> Tensor:  # (b, latent) -> (b, d), coefficients without their mean
        correction: Tensor = self.last(self.first(z / self.encoder.variances.sqrt()).relu())
        return z @ self.encoder.directions.T + correction

    def images(self, z: Tensor) -> Tensor:  # (b, latent) -> (b, pixels)
        return cast(Tensor, (self(z) + self.encoder.mean) @ self.encoder.waves + self.encoder.centre).clamp(0, 1)


class LatentSampler:
    """The sampler: draws a component of the class, a latent of the component, and decodes it."""

    def __init__(self, mixture: LatentMixture, decoder: Decoder, spec: Spec, seed: int) -> None:
        self._mixture, self._decoder, self._spec = mixture, decoder, spec
        self._factors, self._draw = torch.linalg.cholesky(mixture.covariances), torch.Generator().manual_seed(seed)

    def __call__(self, labels: Tensor) -> Images:
        made = []
        for chunk in torch.split(labels, CHUNK):
            at = chunk, torch.multinomial(self._mixture.sizes[chunk], 1, generator=self._draw)[:, 0]
            drawn = torch.randn(len(chunk), self._factors.shape[-1], 1, generator=self._draw, dtype=torch.float64)
            images = self._decoder.images((self._mixture.means[at] + (self._factors[at] @ drawn)[..., 0]).float())
            made.append(images.mul(255).round().to(torch.uint8).reshape(-1, *self._spec.shape))
        return Images(torch.cat(made), labels, self._spec.classes)
