"""What of a U-Net is trained when a part of it is named."""

from __future__ import annotations

import pytest

from sfumato.networks.unet import UNet
from sfumato.networks.unet_parts import PARTS, train_only


@pytest.mark.parametrize("part", PARTS)
def test_classes_and_times_belong_to_every_part(part: str) -> None:
    unet = UNet(4, width=8, classes=3)
    train_only(unet, part)
    trained = {name for name, parameter in unet.named_parameters() if parameter.requires_grad}
    assert {"of_class.weight", "of_time.0.weight", "stem.weight"} <= trained
    assert ("middle_in.first.weight" in trained) == (part == "all")
    assert ("middle_attention.query.weight" in trained) == (part in ("all", "attention", "attention-conditioning"))
    assert ("middle_in.of_time.weight" in trained) == (part in ("all", "conditioning", "attention-conditioning"))


def test_parts_are_smaller_than_the_whole_and_can_be_left_again() -> None:
    unet = UNet(4, width=8, classes=3)
    counts = {}
    for part in PARTS:
        train_only(unet, part)
        counts[part] = sum(p.numel() for p in unet.parameters() if p.requires_grad)
    assert max(count for part, count in counts.items() if part != "all") < counts["all"] / 2
    assert counts["all"] == sum(p.numel() for p in unet.parameters())
