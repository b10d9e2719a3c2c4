"""The certificate of a run: what the ledger charged, and everything that the claim depends on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import UsageError
from sfumato.privacy import LATTICE_BITS, Ledger, Noise, epsilon_pld, epsilon_rdp, profile
from sfumato.release import Certificate, NoiseSource, statements
from sfumato.values import CertificateLevel, Images

if TYPE_CHECKING:
    from sfumato.making.release import Job, Task

_VERSIONS = ("sfumato", "torch", "numpy", "scipy", "dp-accounting", "cryptography", "pillow", "pyarrow")


def assumptions_of(job: Job) -> list[str]:
    """What must be true outside of the mathematics."""
    return statements.assumptions(public=job.public is not None)


def resampled(assumptions: Iterable[str]) -> list[str]:
    """The same for another release from the same answers; older ledgers state it in older words."""
    current = (statements.ALONE if text == statements.ALONE_BEFORE else text for text in assumptions)
    stated = dict.fromkeys(current)  # without repetitions, in the same order
    return [*stated, statements.TOGETHER]


def certify(
    job: Job, task: Task, ledger: Ledger, noise: Noise | NoiseSource, images: Images, assumptions: Iterable[str]
) -> Certificate:
    """Built from the charges as executed, never from the configuration."""
    mechanisms = [charge.mechanism for charge in ledger.charges]
    private = noise.private and not math.isinf(task.budget.epsilon)
    delta = task.budget.delta
    spec = task.spec
    epsilon = epsilon_pld(mechanisms, delta) if private else None
    curve = _curve(mechanisms, epsilon) if epsilon is not None else []
    level: CertificateLevel = "certified" if private else "not-private"
    settings = asdict(task.synthesizer)  # type: ignore[call-overload]
    hyperparameters = {name: str(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return Certificate.model_validate(
        {
            "guarantee": {
                "level": level,
                "epsilon": epsilon,
                "delta": delta,
                "epsilon_rdp": epsilon_rdp(mechanisms, delta) if private else None,
                "adjacency": statements.ADJACENCY,
                "unit": statements.UNIT,
                "accountant": f"PLD, dp-accounting {version('dp-accounting')}",
            },
            "budget": {"epsilon": task.budget.epsilon if private else None, "delta": delta},
            "mechanisms": [{"purpose": c.purpose, **c.mechanism.to_dict()} for c in ledger.charges],
            "assumptions": _known(job, assumptions),
            "public": {
                **asdict(spec),
                "classes": list(spec.classes),
                "public_data": job.public and Path(job.public).name,
            },
            "method": {"name": job.method, "hyperparameters": hyperparameters},
            "noise": {"source": noise.source, "private": noise.private, "lattice_bits": LATTICE_BITS},
            "profile": curve,
            "versions": {name: version(name) for name in _VERSIONS},
            "samples": _samples(images),
        }
    )


def _known(job: Job, assumptions: Iterable[str]) -> list[str]:
    """The assumptions, if they are the known ones; the schema's own message would repeat an unknown sentence."""
    stated = list(assumptions)
    problem = statements.assumption_problem(stated, public=job.public is not None)
    if problem is not None:
        raise UsageError(
            f"Expected a ledger with the assumptions of every release; {problem}.",
            fix="let the method state nothing of its own with ledger.assume",
        )
    return stated


def _samples(images: Images) -> dict[str, Any]:
    transfer = 0 if images.transfer is None else len(images.transfer)
    return {"count": len(images), "has_logits": images.logits is not None, "transfer": transfer}


def _curve(mechanisms: list[Any], epsilon: float) -> list[tuple[float, float]]:
    """delta(epsilon) at fractions and multiples of the claimed epsilon."""
    points = [round(epsilon * factor, 6) for factor in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)]
    # losses are rounded up, so that a delta of 1 may be computed as slightly more
    return [(point, min(1.0, delta)) for point, delta in zip(points, profile(mechanisms, points), strict=True)]
