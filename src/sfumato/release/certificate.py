"""The closed schema of certificate.json: what a release claims, and every public fact the claim rests on."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from sfumato.errors import UsageError, VerificationFailed, printable
from sfumato.release import statements
from sfumato.values import CertificateLevel, ReleaseKind

FORMAT: Final = "sfumato-release/1"
MODEL_FORMAT: Final = "sfumato-model/1"
LARGEST = 1 << 20  # bytes; an honest certificate has a few thousand

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Scalar = bool | int | float | str | None
Setting = bool | int | float | Annotated[str, Field(max_length=2000)]
Positive = Annotated[int, Field(ge=1, le=10**12)]
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


class _Closed(BaseModel):
    """Frozen, and an unknown field is an error, so that a certificate contains nothing unforeseen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _without_empty(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value or name not in names}


class Guarantee(_Closed):
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


class RequestedBudget(_Closed):
    """What was asked for; epsilon null means without limit."""

    epsilon: Annotated[float, Field(ge=0)] | None
    delta: Annotated[float, Field(ge=0, lt=1)]


class _Asked(_Closed):
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


class PublicFacts(_Closed):
    """What anyone may know of the private data before any privacy is spent."""

    count: Positive
    channels: Annotated[int, Field(ge=1, le=3)]
    height: Annotated[int, Field(ge=1, le=1 << 14)]
    width: Annotated[int, Field(ge=1, le=1 << 14)]
    classes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_000)]
    public_data: Text | None
    public_network: Annotated[Text, Field(pattern=PUBLIC_NETWORK)] | None = None  # name and checksum

    @model_serializer(mode="wrap")
    def _as_before_networks(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `public_network` out where there is none, so that older releases keep their one canonical form."""
        return _without_empty(plain(self), "public_network")


class Method(_Closed):
    """How the release was made."""

    name: Name
    hyperparameters: Annotated[dict[Name, Scalar], Field(max_length=500)]


class NoiseSource(_Closed):
    """Where the randomness came from; private means that nobody can reproduce it."""

    source: Annotated[str, _known(tuple(statements.NOISE_SOURCES))]
    private: bool
    lattice_bits: Annotated[int, Field(ge=statements.LATTICE_BITS, le=statements.LATTICE_BITS)]

    @model_validator(mode="after")
    def _source_and_private_agree(self) -> Self:
        if self.private != statements.NOISE_SOURCES[self.source]:
            raise ValueError("expected noise to be called private exactly where its source is, got the opposite")
        return self


class Samples(_Closed):
    """How many synthetic images there are, whether each carries a teacher's logits, and how many further ones."""

    count: Positive
    has_logits: bool
    transfer: Annotated[int, Field(ge=0, le=10**12)] = 0
    network: Annotated[int, Field(ge=0, le=10**12)] = 0

    @model_serializer(mode="wrap")
    def _as_before_further_images(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the further images out where there are none, so that older releases keep their one canonical form."""
        return _without_empty(plain(self), "transfer", "network")


class PrivacyCertificate(_Closed):
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

    def to_json(self) -> str:
        """The one way to write this certificate: sorted keys, shortest numbers, no NaN or infinity."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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


class TensorFacts(_Closed):
    """A tensor of a released model, of 32-bit floating-point numbers."""

    name: Annotated[str, Field(pattern=TENSOR, max_length=200)]
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=10**9)], ...], Field(max_length=8)]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class ModelFacts(_Closed):
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
    if len(text) > LARGEST:
        raise _refused(f"Expected a certificate of at most {LARGEST} bytes, got {len(text)}.", where)
    try:
        # of two equal keys the schema's parser keeps the last, and other readers may keep the first
        plain = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise _refused("Expected plain JSON in the certificate, got deep nesting.", where) from None
    except ValueError as error:
        raise _refused(f"Expected valid JSON in the certificate: {printable(error)}.", where) from None
    schema = _schema(plain, where)
    try:
        return schema.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _refused(_first_problem(error), where) from None


def _schema(plain: object, where: object) -> type[AnyCertificate]:
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
    path = Path(folder) / "certificate.json"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _refused("Expected certificate.json to be a file of its own, got a link, folder or pipe.", path)
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise _refused(f"Expected a readable certificate.json: {error.strerror}.", path) from None
    return parse_certificate(text, where=path)


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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands there twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the number at {key[:100]!r} is too large")
        found[key] = value
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part)[:100] for part in problems[0]["loc"]) or "the whole"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"Expected the certificate's schema; at {printable(place)}: {printable(problems[0]['msg'])}{more}."


def _refused(what: str, where: object) -> VerificationFailed:
    return VerificationFailed(what, where=where, fix="ask the publisher for the release again")
