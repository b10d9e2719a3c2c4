"""Every sentence that a certificate may state: what is protected, from what, and what must be true outside of it.

They are a closed list, so that nobody can put a stronger promise, or a word about the data, into a release.
`verify` prints these sentences and none that a release brings along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

NO_EPSILON = "there is no epsilon here"  # where there is no certificate; the only use of the word in such a release

UNIT = "one image"
ADJACENCY = "zero-out: one record replaced by nothing, the number of records public"

KNOWN = "The number of records, the image size, the colour mode and the list of classes are public knowledge."
PERSON = "Each person stands behind at most one image; someone with k images gets a weaker guarantee."
SETTINGS = "Hyperparameters were chosen without looking at the private data."
ALONE = (
    "No other release was made from the same data, except from the same noisy answers, which costs nothing more; "
    "the epsilons and deltas of any other releases add up."
)
ALONE_BEFORE = (  # as it stands in ledgers and certificates from before resampling; it assumes more than ALONE
    "No other release was made from the same data; the epsilons and deltas of several releases add up."
)
PUBLIC = "The public images contain none of the private records."
NETWORK = "The public network was trained on none of the private records."
TOGETHER = (
    "This release was resampled from the noisy answers of an earlier one: it and all others that were made from the "
    "same answers cost this epsilon and delta once, together."
)

# A copy of what `sfumato.privacy.noise` says of itself, because whoever reads a certificate needs no core; a test
# compares the two.
NOISE_SOURCES: Mapping[str, bool] = MappingProxyType(  # whether nobody can draw such noise again
    {"ChaCha20 keyed from OS entropy": True, "SEEDED, NOT PRIVATE": False}
)
LATTICE_BITS = 20


def assumptions(*, public: bool, network: bool) -> list[str]:
    """What every guarantee rests on, with or without public images and a public network."""
    return [KNOWN, PERSON, SETTINGS, ALONE, *([PUBLIC] if public else []), *([NETWORK] if network else [])]


def assumption_problem(stated: Sequence[str], *, public: bool, network: bool) -> str | None:
    """What is wrong with a list of assumptions; the sentences are not repeated, for they may hold private things."""
    needed = set(assumptions(public=public, network=network))
    if ALONE_BEFORE in stated:
        needed.discard(ALONE)
    if unknown := set(stated) - {*assumptions(public=True, network=True), ALONE_BEFORE, TOGETHER}:
        return f"expected assumptions from the list of known ones, got {len(unknown)} other"
    if len(set(stated)) < len(stated):
        return "expected each assumption once, got one of them twice"
    if not needed <= set(stated):
        return f"expected every assumption that the guarantee rests on, got {len(needed - set(stated))} too few"
    if PUBLIC in stated and not public:
        return "expected no assumption about public images, because none are named, got one"
    if NETWORK in stated and not network:
        return "expected no assumption about a public network, because none is named, got one"
    return None
