"""DP-CGAN (Torkzadehmahani, Kairouz, Paten 2019): a conditional GAN whose two losses are bounded separately.

Generator and discriminator get the class label (Mirza and Osindero 2014). The gradients of the discriminator's
cross-entropy on real and on generated images are bounded each on its own, and noise is added to those of real images.
The paper's networks have one hidden layer; here they have convolutions. By default the generator corrects images that
are painted from noisy class mixtures (Shrivastava et al. 2017) and learns from the discriminator's weights alone.

A discriminator of images with right labels alone does not learn what a label means (measured: it scored a wrong label
as high as the right one). So, as in Reed et al. (2016), a real image with the labels of the other classes counts as one
that is not real (`mismatch`); it is the same record, in the same row, with the same bound. Then the discriminator also
selects: of several drafts of an image, the likeliest is kept.

What is wrong in the authors' code, and what is done here:

- Images are generated with the labels of the private batch, in the discriminator's step, where their gradients get no
  noise, and in the generator's. So labels leave without being paid for. Here generated images have all classes in turn,
  and then their side needs no noise indeed.
- Every weight matrix and bias has a bound of its own, with noise as for one: a record moves all four at once, twice as
  far as was counted. Here one bound is for all weights together.
- Batches are cut from a shuffled list and counted as if every record were drawn by chance. Here they are drawn so.
- Images are released in the numbers of the private classes. Here the labels are asked for by whoever samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.contracts import Sampler, Synthesizer
from sfumato.networks.conditional_discriminators import JoinedDiscriminator
from sfumato.privacy import PrivateImages
from sfumato.synthesis.adversarial_training import CROSS_ENTROPY, AdversarialGAN
from sfumato.values import Images


@dataclass(frozen=True)
class DPCGAN(AdversarialGAN, Synthesizer):
    """Hyperparameters, all public: those of `AdversarialGAN`."""

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        return self.trained(private, JoinedDiscriminator, CROSS_ENTROPY, what="dp-cgan")
