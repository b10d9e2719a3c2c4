"""Write a released classifier, and read it back once its sums hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout
from sfumato.release.card import render_card
from sfumato.release.certificate import ModelCertificate, ModelFacts, TensorFacts, read_model_certificate
from sfumato.release.closed import LARGEST
from sfumato.release.new_folder import new_folder, write_file
from sfumato.release.sums import refuse_changed
from sfumato.release.tensors import file_bytes, read_tensors
from sfumato.values import Classifier, ModelRelease

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

LARGEST_SIDE = 1024  # pixels; no reader makes larger images, and fixed features of them could fill the memory
NETWORK_PARAMETERS = 1 << 30  # that a public network may have beside the model's own


def model_facts(classifier: Classifier) -> ModelFacts:
    """What a certificate says of a classifier: how to build it, and which tensors its weights are."""
    return ModelFacts(
        architecture=classifier.architecture,
        settings=dict(classifier.settings),
        tensors=_tensor_facts(classifier.network),
    )


def write_model(folder: Path | str, classifier: Classifier, certificate: ModelCertificate) -> Path:
    """Write a classifier and its certificate as a release folder; the bytes depend on nothing else."""
    target = Path(folder).absolute()
    values = _values(classifier.network)
    for what, expected, got in (
        ("the architecture", certificate.model.architecture, classifier.architecture),
        ("the settings", certificate.model.settings, classifier.settings),
        ("the tensors", certificate.model.tensors, _tensor_facts(classifier.network)),
    ):
        if expected != got:
            raise UsageError(f"Expected {what} as in the certificate, got others.", fix="certify the classifier itself")
    text = certificate.to_json().encode()
    if len(text) > LARGEST:
        raise UsageError(
            f"Expected a certificate of at most {LARGEST} bytes, got {len(text)}.", fix="use fewer, larger layers"
        )
    with new_folder(target) as work:
        write_file(work / layout.WEIGHTS, file_bytes(certificate.model.tensors, values))
        write_file(work / layout.CERTIFICATE, text)
        write_file(work / layout.CARD, render_card(certificate).encode())
    return target


def read_model(folder: Path | str) -> ModelRelease:
    """The released classifier in a folder, ready to use; its claim is not verified.

    A folder that differs from its sums is refused. The network is built by the code of this package from the
    architecture and settings that the certificate states, and nothing in the folder is run.
    """
    path = Path(folder)
    refuse_changed(path)
    certificate = read_model_certificate(path)
    facts, public = certificate.model, certificate.public
    shape = (public.channels, public.height, public.width)
    network = _network(path, certificate)
    classifier = Classifier(facts.architecture, dict(facts.settings), network)
    return ModelRelease(path, certificate.model_dump(mode="json"), classifier, public.classes, shape)


def _network(path: Path, certificate: ModelCertificate) -> nn.Module:
    """The network with the released weights, in eval mode, its weights fixed."""
    import torch

    from sfumato.networks.models import build_model

    facts, public = certificate.model, certificate.public
    try:
        values = read_tensors(path / layout.WEIGHTS, facts.tensors)
    except (ValueError, OSError) as error:
        raise VerificationFailed(
            f"Expected weights as the certificate states them, got: {error}.",
            where=path,
            fix="run `sfumato verify` to see all problems",
        ) from error
    if max(public.height, public.width) > LARGEST_SIDE:
        raise UsageError(
            f"Expected a classifier of images of at most {LARGEST_SIDE} pixels a side, got one of {public.width} x "
            f"{public.height}.",
            where=path,
            fix="ask the publisher for a smaller one",
        )
    shape = (public.channels, public.height, public.width)
    spare = 0 if public.public_network is None else NETWORK_PARAMETERS
    with _parameters_up_to(facts.parameters + spare):
        network = build_model(facts.architecture, shape, len(public.classes), dict(facts.settings))
    if _tensor_facts(network) != facts.tensors:
        raise VerificationFailed(
            f"Expected the weights of {facts.architecture} with these settings, got other tensors.",
            where=path,
            fix="install the version of sfumato that made the model, or ask its publisher for it again",
        )
    network.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()}, strict=True)
    return network.eval().requires_grad_(False)


@contextmanager
def _parameters_up_to(most: int) -> Iterator[None]:
    """Refuse a network with more parameters than this while it is built, before their memory is written to.

    The settings are the publisher's, and those of a small file may be of a network that fills the memory.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    made = 0

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal made
        made += 0 if parameter is None else parameter.numel()
        if made > most:
            raise ValueError("they give more parameters than the certificate states")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # a tensor for which there is no memory, or no number of its size
        raise VerificationFailed(
            "Expected settings of a network that fits in memory, got others.",
            fix="ask the publisher for the release again",
        ) from error
    finally:
        hook.remove()


def _tensor_facts(network: nn.Module) -> tuple[TensorFacts, ...]:
    state = sorted(network.state_dict().items())
    return tuple(TensorFacts(name=name, shape=tuple(tensor.shape)) for name, tensor in state)


def _values(network: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Parameters and buffers by name, if a release can hold them."""
    import torch

    found: dict[str, NDArray[np.float32]] = {}
    for name, tensor in network.state_dict().items():
        if tensor.dtype is not torch.float32:
            raise UsageError(
                f"Expected weights of torch.float32, got {tensor.dtype} in {name}.",
                fix="use layers that hold no other type",
            )
        values = tensor.detach().cpu().numpy()
        if not abs(values).max(initial=0.0) < float("inf"):
            raise UsageError(f"Expected finite weights, got others in {name}.", fix="train with a smaller step size")
        found[name] = values
    return found
