"""Parts of a U-Net that can be trained while the rest stays: noise in fewer weights is less noise."""

from __future__ import annotations

import re

from torch import nn

# By the names of parameters. "conditioning": what scales and shifts by time and class, norms, first and last layer;
# "attention": attention, time and class, first layer (as DP-LDM trains of a pixel model, Liu et al. 2023);
# "attention-conditioning": these, and what carries time and class into each block, as cross-attention does in networks
# that have it (as DP-LDM trains of a latent model).
PARTS = {
    "all": r"",
    "conditioning": r"of_time|of_class|norm|^stem|^last",
    "attention": r"attention|^of_time|^of_class|^stem",
    "attention-conditioning": r"attention|of_time|^of_class|^stem",
}


def train_only(network: nn.Module, part: str) -> None:
    """Let the parameters of a part be trained, and no others."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(re.search(PARTS[part], name) is not None)
