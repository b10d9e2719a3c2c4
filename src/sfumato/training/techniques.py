"""The six techniques of generalisation by name, the same for training with and without privacy."""

from __future__ import annotations

from sfumato.errors import UsageError

TECHNIQUES = {
    "obs": "large batches",
    "gn": "group norm",
    "ws": "weight standardisation",
    "am": "augmentation multiplicity",
    "pa": "parameter averaging",
    "sat": "sharpness-aware training",
}
WIDE = {  # depth, widening and stride of the stem; the first is for two cores, the last two are for a GPU
    "wrn-10-1-fast": (10, 1, 2),
    "wrn-16-1": (16, 1, 1),
    "wrn-16-4": (16, 4, 1),
    "wrn-40-4": (40, 4, 1),
}


def switched_on(techniques: str) -> set[str]:
    """The techniques in a list with commas; `none` stands for none of them."""
    named = {name.strip() for name in techniques.split(",")} - {"", "none"}
    unknown = named - set(TECHNIQUES)
    if unknown:
        raise UsageError(
            f"Expected techniques from {', '.join(TECHNIQUES)}; got {', '.join(sorted(unknown))}.",
            fix="separate them by commas, or write none or standard",
        )
    return named
