"""What a release states of the images in one of its folders of shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.release import layout
from sfumato.release.certificate import Certificate

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Subset:
    """Images that are stored together; `stated_in` says where to read what is known of them."""

    name: str  # of the folder
    count: int
    shape: tuple[int, int, int]  # channels, height, width
    labels: Mapping[str, tuple[str, ...]]  # the columns of labels, and what their values are called
    logits: int | None = None  # how many each image has; None: it has none
    stated_in: str = "the certificate"

    @property
    def size(self) -> tuple[int, int]:
        return self.shape[1:]

    @property
    def schema(self) -> pa.Schema:
        return layout.parquet_schema(self.labels, self.logits)


def subsets_of(certificate: Certificate) -> list[Subset]:
    """The images of the classes, and the further ones that are stated."""
    public, samples = certificate.public, certificate.samples
    shape = (public.channels, public.height, public.width)
    labels, width = {layout.LABEL: public.classes}, len(public.classes)
    further = {name: getattr(samples, name) for name in layout.FURTHER}
    return [
        Subset(layout.DATA, samples.count, shape, labels, width if samples.has_logits else None),
        *(Subset(name, count, shape, labels, width) for name, count in further.items() if count),
    ]
