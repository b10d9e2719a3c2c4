"""The certificate of a run: what the ledger charged, and everything that the claim depends on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import DataError, UsageError, printable
from sfumato.privacy import LATTICE_BITS, Budget, Ledger, Noise, epsilon_pld, epsilon_rdp, profile
from sfumato.release import Certificate, ModelCertificate, NoiseSource, statements
from sfumato.release.certificate import PUBLIC_NETWORK
from sfumato.release.model import model_facts
from sfumato.values import CertificateLevel, Classifier, Images, Spec

if TYPE_CHECKING:
    from sfumato.contracts import Asking, Learner
    from sfumato.making.charged_run import Request
    from sfumato.making.release import Job, Task

_VERSIONS = ("sfumato", "torch", "numpy", "scipy", "dp-accounting", "cryptography", "pillow", "pyarrow")


def assumptions_of(job: Request, asking: Asking) -> list[str]:
    """What must be true outside of the mathematics."""
    return statements.assumptions(public=job.public is not None, network=network_of(asking) is not None)


def network_of(asking: Asking) -> str | None:
    """The public network as a certificate can name it; else refused here, before any privacy is spent."""
    named = asking.public_network()
    if named is not None and not re.fullmatch(PUBLIC_NETWORK, named):
        raise UsageError(
            "Expected the name of a public network (up to 100 letters, digits, dots, hyphens and underscores) and its "
            f"checksum, as in 'lite0.safetensors, SHA-256 ...' with 64 hex digits; got {printable(named)!r}.",
            fix="give the file of the network such a name",
        )
    return named


def resampled(assumptions: Iterable[str]) -> list[str]:
    """The same for another release from the same answers; older ledgers state it in older words."""
    current = (statements.ALONE if text == statements.ALONE_BEFORE else text for text in assumptions)
    stated = dict.fromkeys(current)  # without repetitions, in the same order
    return [*stated, statements.TOGETHER]


def certify(
    job: Job, task: Task, ledger: Ledger, noise: Noise | NoiseSource, images: Images, assumptions: Iterable[str]
) -> Certificate:
    """Of a release of images."""
    network = network_of(task.synthesizer)
    samples = _samples(images)
    if samples["network"] and network is None:
        raise UsageError(
            f"Expected images for a public network only where the method names one; got {samples['network']} images "
            "and no network.",
            fix="let the method's sampler and its public_network agree",
        )
    if images.network is not None and images.network.seen_through != network:
        raise DataError(
            f"Expected the public network to stay as it was during the run, got {network} in place of "
            f"{images.network.seen_through}.",
            fix="put the file of the first network in its place again, and run the same command",
        )
    stated = _stated(job, task.spec, task.budget, task.synthesizer, ledger, noise, assumptions)
    return Certificate.model_validate({**stated, "samples": samples})


def certify_model(
    job: Request, spec: Spec, budget: Budget, learner: Learner, ledger: Ledger, noise: Noise, classifier: Classifier
) -> ModelCertificate:
    """Of a released classifier."""
    named = classifier.settings.get("network")
    if named != network_of(learner):
        raise DataError(
            f"Expected the public network to stay as it was during the run, got {network_of(learner)} in place of "
            f"{named}.",
            fix="put the file of the first network in its place again, and run the same command",
        )
    stated = _stated(job, spec, budget, learner, ledger, noise, ledger.assumptions)
    return ModelCertificate.model_validate({**stated, "model": model_facts(classifier)})


def _stated(
    job: Request,
    spec: Spec,
    budget: Budget,
    asking: Asking,
    ledger: Ledger,
    noise: Noise | NoiseSource,
    assumptions: Iterable[str],
) -> dict[str, Any]:
    """What every certificate states: built from the charges as executed, never from the configuration."""
    mechanisms = [charge.mechanism for charge in ledger.charges]
    private = noise.private and not math.isinf(budget.epsilon)
    delta = budget.delta
    epsilon = epsilon_pld(mechanisms, delta) if private else None
    level: CertificateLevel = "certified" if private else "not-private"
    settings = asdict(asking)  # type: ignore[call-overload]
    network = network_of(asking)
    return {
        "guarantee": {
            "level": level,
            "epsilon": epsilon,
            "delta": delta,
            "epsilon_rdp": epsilon_rdp(mechanisms, delta) if private else None,
            "adjacency": statements.ADJACENCY,
            "unit": statements.UNIT,
            "accountant": f"PLD, dp-accounting {version('dp-accounting')}",
        },
        "budget": {"epsilon": budget.epsilon if private else None, "delta": delta},
        "mechanisms": [{"purpose": c.purpose, **c.mechanism.to_dict()} for c in ledger.charges],
        "assumptions": _known(assumptions, public=job.public is not None, network=network is not None),
        "public": {
            **asdict(spec),
            "classes": list(spec.classes),
            "public_data": job.public and Path(job.public).name,
            "public_network": network,
        },
        "method": {
            "name": job.asked_by,
            "hyperparameters": {name: _written(name, value) for name, value in settings.items()},
        },
        "noise": {"source": noise.source, "private": noise.private, "lattice_bits": LATTICE_BITS},
        "profile": _curve(mechanisms, epsilon) if epsilon is not None else [],
        "versions": {name: version(name) for name in _VERSIONS},
    }


def _written(name: str, value: Any) -> Any:
    """A hyperparameter for the certificate, which holds no paths: of the file of a network the name alone."""
    if name == "network" and isinstance(value, str | Path):
        return Path(value).name
    return str(value) if isinstance(value, tuple) else value


def _known(assumptions: Iterable[str], *, public: bool, network: bool) -> list[str]:
    """The assumptions, if they are the known ones; the schema's own message would repeat an unknown sentence."""
    stated = list(assumptions)
    problem = statements.assumption_problem(stated, public=public, network=network)
    if problem is not None:
        raise UsageError(
            f"Expected a ledger with the assumptions of every release; {problem}.",
            fix="let the method state nothing of its own with ledger.assume",
        )
    return stated


def _samples(images: Images) -> dict[str, Any]:
    further = {"transfer": images.transfer, "network": images.network}
    counts = {name: 0 if subset is None else len(subset) for name, subset in further.items()}
    return {"count": len(images), "has_logits": images.logits is not None, **counts}


def _curve(mechanisms: list[Any], epsilon: float) -> list[tuple[float, float]]:
    """delta(epsilon) at fractions and multiples of the claimed epsilon."""
    points = [round(epsilon * factor, 6) for factor in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)]
    # losses are rounded up, so that a delta of 1 may be computed as slightly more
    return [(point, min(1.0, delta)) for point, delta in zip(points, profile(mechanisms, points), strict=True)]
