"""DP-GAN (Xie, Lin, Wang, Wang, Zhou 2018): a generator that learns from a discriminator trained by DP-SGD.

In the form of DPImageBench (Gong et al. 2025): hinge loss, a discriminator with class projection (Miyato and Koyama
2018), averaged weights of the generator. By default the generator corrects images that are painted from noisy class
mixtures (Shrivastava et al. 2017), because one with random weights needs most of the noisy gradients to find the rough
shapes of the classes. The generator sees private images through the discriminator's weights alone, so its training is
post-processing.

A discriminator of images with right labels alone does not learn what a label means (measured: it scored a wrong label
as high as the right one). So, as in Reed et al. (2016), a real image with the labels of the other classes counts as one
that is not real (`mismatch`); it is the same record, in the same row, with the same bound. Then the discriminator also
selects: of several drafts of an image, the likeliest is kept.

What is wrong in public code, and what is done here:

- The authors' code adds noise to the gradient of a whole batch, leaves that of the last weights without any, and bounds
  weights in place of gradients. Weights that are bounded afterwards do not bound what one record changed. Here the
  gradient of each record is bounded, over all layers together.
- DPImageBench adds the gradients of a real and a generated image and bounds the sum, so generated images use up the
  bound and get noise. They and their labels are public: here they are no part of a record's row. Their gradients are
  bounded as well, so that the two sides weigh the same, and are added without noise.
- Noise comes from a random generator with a public seed there; here from the core.
- Batch norm in a discriminator mixes records, so that bounding one record's gradient bounds nothing. The core refuses
  it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.contracts import Sampler, Synthesizer
from sfumato.networks.conditional_discriminators import ProjectionDiscriminator
from sfumato.privacy import PrivateImages
from sfumato.synthesis.adversarial_training import HINGE, AdversarialGAN
from sfumato.values import Images


@dataclass(frozen=True)
class DPGAN(AdversarialGAN, Synthesizer):
    """Hyperparameters, all public: those of `AdversarialGAN`."""

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        return self.trained(private, ProjectionDiscriminator, HINGE, what="dp-gan")
