"""Small releases for tests, and what an attacker can do to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from sfumato.privacy import GaussianSum, Mechanism, epsilon_pld, epsilon_rdp, profile
from sfumato.release import Certificate, statements
from sfumato.release.card import render_card
from sfumato.release.certificate import parse_certificate
from sfumato.values import Images

CLASSES = ("zero", "T-shirt/top", "../../up")
PUBLIC_NETWORK = f"efficientnet_lite0.safetensors, SHA-256 {'0123456789abcdef' * 4}"
DELTA = 1e-5
CURVE = [0.1, 0.5, 1.0, 2.0]
ACCOUNTANT = f"PLD, dp-accounting {version('dp-accounting')}"
SAID = {"adjacency": statements.ADJACENCY, "unit": statements.UNIT, "accountant": ACCOUNTANT}
OPEN = {"level": "not-private", "epsilon": None, "delta": DELTA, "epsilon_rdp": None, **SAID}  # guarantees nothing


def make_images(
    *,
    count: int = 40,
    channels: int = 1,
    side: int = 8,
    logits: bool = False,
    transfer: int = 0,
    network: int = 0,
    seed: int = 7,
) -> Images:
    draw = np.random.default_rng(seed)
    pixels = torch.from_numpy(draw.integers(0, 256, (count, channels, side, side), dtype=np.uint8))
    labels = torch.from_numpy(draw.integers(0, len(CLASSES), count))
    soft = torch.from_numpy(draw.normal(size=(count, 3)).astype(np.float32)) if logits else None
    further = (
        make_images(count=number, channels=channels, side=side, logits=True, seed=seed) if number else None
        for number, seed in ((transfer, 8), (network, 9))
    )
    return Images(pixels, labels if soft is None else soft.argmax(1), CLASSES, soft, *further)


def make_certificate(images: Images, *mechanisms: Mechanism, **changes: Any) -> Certificate:
    asked = mechanisms or (GaussianSum(noise_multiplier=4.5),)
    epsilon = epsilon_pld(asked, DELTA)
    counts = {
        name: 0 if further is None else len(further)
        for name, further in (("transfer", images.transfer), ("network", images.network))
    }
    public: dict[str, Any] = changes.get("public") or {
        "count": 60_000,
        "channels": images.pixels.shape[1],
        "height": images.pixels.shape[2],
        "width": images.pixels.shape[3],
        "classes": images.classes,
        "public_data": None,
        "public_network": PUBLIC_NETWORK if counts["network"] else None,
    }
    values: dict[str, Any] = {
        "guarantee": {
            "level": "certified",
            "epsilon": epsilon,
            "delta": DELTA,
            "epsilon_rdp": epsilon_rdp(asked, DELTA),
            **SAID,
        },
        "budget": {"epsilon": epsilon * 1.001, "delta": DELTA},
        "mechanisms": [{**m.to_dict(), "purpose": "mean embedding"} for m in asked],
        "assumptions": statements.assumptions(
            public=public["public_data"] is not None, network=public.get("public_network") is not None
        ),
        "public": public,
        "method": {"name": "dp-merf", "hyperparameters": {"features": 100, "rate": 0.001, "deep": True}},
        "noise": {"source": "ChaCha20 keyed from OS entropy", "private": True, "lattice_bits": 20},
        "profile": list(zip(CURVE, profile(asked, CURVE), strict=True)),
        "versions": {"sfumato": "0.1.0"},
        "samples": {"count": len(images), "has_logits": images.logits is not None, **counts},
    }
    return Certificate(**{**values, **changes})


def renew_sums(folder: Path) -> None:
    """What an attacker does after editing a file."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(folder).as_posix()}\n" for p in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def edit_certificate(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "certificate.json"
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False) + "\n", "utf-8")


def renew_card(folder: Path) -> None:
    """The card of an edited certificate."""
    certificate = parse_certificate((folder / "certificate.json").read_bytes())
    (folder / "README.md").write_text(render_card(certificate, folders=False), "utf-8")


def edit_table(folder: Path, change: Callable[[Any], Any], *, subset: str = "data", **options: Any) -> None:
    """Rewrite the shard through a function on its Arrow table."""
    (shard,) = (folder / subset).glob("*.parquet")
    table = change(pq.read_table(shard))
    pq.write_table(table, shard, **{"compression": "none", "use_dictionary": False, **options})
