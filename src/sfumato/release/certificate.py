"""The closed schema of certificate.json: what a release claims, and every public fact the claim rests on."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout, statements
from sfumato.release.closed import Closed, Name, Positive, Scalar, Side, Text, parse_closed, read_closed_file
from sfumato.values import CertificateLevel, ReleaseKind

FORMAT: Final = "sfumato-release/1"
MODEL_FORMAT: Final = "sfumato-model/1"

Setting = bool | int | float | Annotated[str, Field(max_length=2000)]
Rounds = Annotated[int, Field(ge=1, le=10**8)]
Noise = Annotated[float, Field(ge=0, le=1e8)] | None  # as much as can be drawn; zero or null: no guarantee
_ACCOUNTANT = "PLD, dp-accounting "
_VERSION = r"[0-9]{1,6}(\.[0-9]{1,6}){0,5}((a|b|rc|\.post|\.dev)[0-9]{1,6}){0,3}"  # a number and never a word
ARCHITECTURE: Final = r"^[a-z0-9]+(-[a-z0-9]+){0,9}$"  # shown by `verify`, so it is no sentence
TENSOR: Final = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,30}$"  # as torch names them
PUBLIC_NETWORK: Final = r"^[A-Za-z0-9._-]{1,100}, SHA-256 [0-9a-f]{64}$"  # no path, and no sentence


def _known(texts: Collection[str]) -> AfterValidator:
    """One of these texts and no other, because readers of a certificate take them for Sfumato's own words."""

    def check(text: str) -> str:
        if text not in texts:
            raise ValueError(f"expected {' or '.join(repr(known) for known in texts)}, got another text")
        return text

    return AfterValidator(check)


def _without_empty(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value or name not in names}


class Guarantee(Closed):
    """What is promised; a level of not-private has no epsilon."""

    level: CertificateLevel
    epsilon: Annotated[float, Field(ge=0)] | None
    delta: Annotated[float, Field(ge=0, lt=1)]
    epsilon_rdp: Annotated[float, Field(ge=0)] | None
    adjacency: Annotated[str, _known((statements.ADJACENCY,))]
    unit: Annotated[str, _known((statements.UNIT,))]
    accountant: Annotated[str, Field(pattern=f"^{_ACCOUNTANT}{_VERSION}$")]

    @property
    def accounting_version(self) -> str:
        """Of the library that counted."""
        return self.accountant.removeprefix(_ACCOUNTANT)

    @model_validator(mode="after")
    def _level_and_epsilon_agree(self) -> Self:
        if (self.level == "certified") != (self.epsilon is not None):
            raise ValueError("a certified release states an epsilon, a not-private one states null")
        return self


class RequestedBudget(Closed):
    """What was asked for; epsilon null means without limit."""

    epsilon: Annotated[float, Field(ge=0)] | None
    delta: Annotated[float, Field(ge=0, lt=1)]


class _Asked(Closed):
    purpose: Text
    rounds: Rounds
    noise_multiplier: Noise

    def described(self) -> dict[str, Any]:
        """The mechanism alone, as accountants read it."""
        return self.model_dump(exclude={"purpose"})


class GaussianSumAsked(_Asked):
    """Sums of bounded rows of Poisson-sampled records, with Gaussian noise."""

    kind: Literal["gaussian-sum"]
    sampling: Annotated[float, Field(gt=0, le=1)]


class NoisyChoiceAsked(_Asked):
    """Report-noisy-max among candidates."""

    kind: Literal["noisy-choice"]
    candidates: Annotated[int, Field(ge=2, le=10**9)]


class ShardedAnswersAsked(_Asked):
    """Noisy answers of randomly drawn teachers on disjoint shards."""

    kind: Literal["sharded-answers"]
    shards: Annotated[int, Field(ge=1, le=10**9)]


class ShardedSumsAsked(_Asked):
    """Noisy sums of the answers of all teachers on disjoint shards."""

    kind: Literal["sharded-sums"]
    shards: Annotated[int, Field(ge=1, le=10**9)]


Asked = Annotated[
    GaussianSumAsked | NoisyChoiceAsked | ShardedAnswersAsked | ShardedSumsAsked, Field(discriminator="kind")
]


class PublicFacts(Closed):
    """What anyone may know of the private data before any privacy is spent."""

    count: Positive
    channels: Annotated[int, Field(ge=1, le=3)]
    height: Side
    width: Side
    classes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_000)]
    public_data: Text | None
    public_network: Annotated[Text, Field(pattern=PUBLIC_NETWORK)] | None = None  # name and checksum

    @model_serializer(mode="wrap")
    def _as_before_networks(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `public_network` out where there is none, so that older releases keep their one canonical form."""
        return _without_empty(plain(self), "public_network")


class Method(Closed):
    """How the release was made."""

    name: Name
    hyperparameters: Annotated[dict[Name, Scalar], Field(max_length=500)]


class NoiseSource(Closed):
    """Where the randomness came from; private means that nobody can reproduce it."""

    source: Annotated[str, _known(tuple(statements.NOISE_SOURCES))]
    private: bool
    lattice_bits: Annotated[int, Field(ge=statements.LATTICE_BITS, le=statements.LATTICE_BITS)]

    @model_validator(mode="after")
    def _source_and_private_agree(self) -> Self:
        if self.private != statements.NOISE_SOURCES[self.source]:
            raise ValueError("expected noise to be called private exactly where its source is, got the opposite")
        return self


class Samples(Closed):
    """How many synthetic images there are, whether each carries a teacher's logits, and how many further ones."""

    count: Positive
    has_logits: bool
    transfer: Annotated[int, Field(ge=0, le=10**12)] = 0
    network: Annotated[int, Field(ge=0, le=10**12)] = 0

    @model_serializer(mode="wrap")
    def _as_before_further_images(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the further images out where there are none, so that older releases keep their one canonical form."""
        return _without_empty(plain(self), "transfer", "network")


class PrivacyCertificate(Closed):
    """What every certificate states, whatever the release holds: the guarantee, and all that it rests on."""

    kind: ClassVar[ReleaseKind]  # no field: the format says it

    guarantee: Guarantee
    budget: RequestedBudget
    mechanisms: Annotated[tuple[Asked, ...], Field(max_length=500)]
    assumptions: Annotated[tuple[Text, ...], Field(max_length=100)]
    public: PublicFacts
    method: Method
    noise: NoiseSource
    profile: Annotated[
        tuple[tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0, le=1)]], ...],
        Field(max_length=200),
    ]  # (epsilon, delta) points of the privacy curve
    versions: Annotated[dict[Name, Name], Field(max_length=100)]

    @model_validator(mode="after")
    def _statements_agree(self) -> Self:
        public, network = (named is not None for named in (self.public.public_data, self.public.public_network))
        problem = statements.assumption_problem(self.assumptions, public=public, network=network)
        if problem is not None:
            raise ValueError(problem)
        counted_by = self.guarantee.accounting_version
        if self.versions.get("dp-accounting", counted_by) != counted_by:
            raise ValueError("expected one version of dp-accounting in versions and in accountant, got two")
        return self

    @property
    def certified(self) -> bool:
        return self.guarantee.level == "certified"


class Certificate(PrivacyCertificate):
    """Everything that the certificate.json of a release of images may say."""

    kind = "images"

    format: Literal["sfumato-release/1"] = FORMAT
    samples: Samples

    @property
    def holds(self) -> str:
        """What the release holds, in a few words."""
        return f"{self.samples.count:,} images"

    @model_validator(mode="after")
    def _images_and_network_agree(self) -> Self:
        if self.samples.network and self.public.public_network is None:
            raise ValueError("expected images for a public network only where one is named, got none that is named")
        return self


class TensorFacts(Closed):
    """A tensor of a released model, of 32-bit floating-point numbers."""

    name: Annotated[str, Field(pattern=TENSOR, max_length=200)]
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=10**9)], ...], Field(max_length=8)]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class ModelFacts(Closed):
    """What it takes to build the network again, and the tensors that its weights are."""

    architecture: Annotated[str, Field(pattern=ARCHITECTURE, max_length=60)]
    settings: Annotated[dict[Name, Setting], Field(max_length=100)]
    tensors: Annotated[tuple[TensorFacts, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _tensors_in_order(self) -> Self:
        names = [tensor.name for tensor in self.tensors]
        if names != sorted(set(names)):
            raise ValueError("expected tensors in the order of their names, each name once, got others")
        return self

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(tensor.size for tensor in self.tensors)


class ModelCertificate(PrivacyCertificate):
    """Everything that the certificate.json of a released classifier may say; its method is a learner."""

    kind = "model"

    format: Literal["sfumato-model/1"] = MODEL_FORMAT
    model: ModelFacts

    @property
    def holds(self) -> str:
        """What the release holds, in a few words."""
        return f"a classifier of {self.model.parameters:,} parameters"

    @model_validator(mode="after")
    def _model_and_network_agree(self) -> Self:
        if self.model.settings.get("network") != self.public.public_network:
            raise ValueError("expected the same public network in the model's settings as in public, got another")
        return self


AnyCertificate = Certificate | ModelCertificate
_FORMATS: dict[object, type[AnyCertificate]] = {FORMAT: Certificate, MODEL_FORMAT: ModelCertificate}


def parse_certificate(text: bytes, *, where: object = "certificate.json") -> AnyCertificate:
    """Read a certificate that anyone may have written; whatever is wrong with it is named."""
    return parse_closed(text, partial(_schema, where=where), named="the certificate", where=where)


def _schema(plain: object, *, where: object) -> type[AnyCertificate]:
    """The schema of the format that a certificate states; what has no format at all is named by that of images."""
    if not isinstance(plain, dict) or "format" not in plain:
        return Certificate
    stated = plain["format"]
    if not isinstance(stated, str) or stated not in _FORMATS:
        raise VerificationFailed(
            f"Expected a certificate of the format {FORMAT} (images) or {MODEL_FORMAT} (a classifier), got another.",
            where=where,
            fix="install the version of sfumato that made the release, or ask its publisher for it again",
        )
    return _FORMATS[stated]


def read_certificate(folder: Path | str) -> AnyCertificate:
    """The certificate of a release folder; its claims are read, not checked."""
    if layout.holds_hidden_images(Path(folder)):
        raise UsageError(
            "Expected a release with a certificate, got images with a hidden attribute, of which nothing is certified.",
            where=folder,
            fix="use `sfumato leak`, which measures what they give away, or `sfumato verify`",
        )
    path = Path(folder) / layout.CERTIFICATE
    return parse_certificate(read_closed_file(path), where=path)


def read_image_certificate(folder: Path | str) -> Certificate:
    """The certificate of a release of images, for whoever needs images."""
    certificate = read_certificate(folder)
    if not isinstance(certificate, Certificate):
        raise UsageError(
            "Expected a release of images, got a classifier.",
            where=folder,
            fix="use verify, predict, evaluate or attack, which take a classifier",
        )
    return certificate


def read_model_certificate(folder: Path | str) -> ModelCertificate:
    """The certificate of a released classifier, for whoever needs one."""
    certificate = read_certificate(folder)
    if not isinstance(certificate, ModelCertificate):
        raise UsageError(
            "Expected a released classifier, got a release of images.",
            where=folder,
            fix="name a folder that `sfumato train` wrote",
        )
    return certificate
