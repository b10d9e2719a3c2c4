"""A diffusion model that is trained on images that anyone may see, and then by DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import expect_within
from sfumato.networks.latents import Latents
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.synthesis.pretraining import Deviations, Pretraining, pretrain
from sfumato.synthesis.private_diffusion import TRAINED, PrivateDiffusion
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class PretrainedDiffusion(PrivateDiffusion):
    """The hyperparameters of both trainings, all public."""

    steps: int = 4_000  # of the training without noise
    batch: int = 128
    plain_rate: float = 2e-3  # of this training
    plain_averaging: float = 0.998  # and of its weights

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 10**7
        expect_within(self, steps=(1, most), batch=(1, most), plain_rate=(1e-9, 100), plain_averaging=(0, 0.99999))

    def pretraining_seconds(self, spec: Spec) -> float:
        return self.steps * (0.02 + self.batch * 0.5 * TRAINED * self._places(spec))

    def seconds(self, spec: Spec) -> float:
        return super().seconds(spec) + self.pretraining_seconds(spec)

    def pretrain(
        self,
        network: ClassDenoiser,
        images: Images,
        spec: Spec,
        *,
        images_are_public: bool = False,
        deviations: Deviations = "measured",
        latents: Latents | None = None,
    ) -> None:
        """Train the network in place; it is kept in the user's cache only if `images_are_public` (see `pretrain`)."""
        settings = Pretraining(
            self.noise_levels(),
            self.steps,
            self.batch,
            self.plain_rate,
            self.plain_averaging,
            self.unlabelled,
            mirror=spec.channels == 3,  # mirrored digits and letters are others
            seed=self.seed,
            deviations=deviations,
        )
        pretrain(network, images, latents or self.grid(spec), settings, images_are_public=images_are_public)
