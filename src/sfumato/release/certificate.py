"""The closed schema of certificate.json: what a release claims, and every public fact the claim rests on."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

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

from sfumato.errors import VerificationFailed, printable
from sfumato.release import statements
from sfumato.values import CertificateLevel

FORMAT: Final = "sfumato-release/1"
LARGEST = 1 << 20  # bytes; an honest certificate has a few thousand

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Scalar = bool | int | float | str | None
Positive = Annotated[int, Field(ge=1, le=10**12)]
Rounds = Annotated[int, Field(ge=1, le=10**8)]
Noise = Annotated[float, Field(ge=0, le=1e8)] | None  # as much as can be drawn; zero or null: no guarantee
_ACCOUNTANT = "PLD, dp-accounting "
_VERSION = r"[0-9]{1,6}(\.[0-9]{1,6}){0,5}((a|b|rc|\.post|\.dev)[0-9]{1,6}){0,3}"  # a number and never a word
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


Asked = Annotated[GaussianSumAsked | NoisyChoiceAsked | ShardedAnswersAsked, Field(discriminator="kind")]


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


class Certificate(_Closed):
    """Everything that certificate.json may say."""

    # there is no field for the kind of release (`values.ReleaseKind`): format 1 is images
    format: Literal["sfumato-release/1"] = FORMAT
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
    samples: Samples

    @model_validator(mode="after")
    def _statements_agree(self) -> Self:
        public, network = (named is not None for named in (self.public.public_data, self.public.public_network))
        problem = statements.assumption_problem(self.assumptions, public=public, network=network)
        if problem is not None:
            raise ValueError(problem)
        counted_by = self.guarantee.accounting_version
        if self.versions.get("dp-accounting", counted_by) != counted_by:
            raise ValueError("expected one version of dp-accounting in versions and in accountant, got two")
        if self.samples.network and not network:
            raise ValueError("expected images for a public network only where one is named, got none that is named")
        return self

    @property
    def certified(self) -> bool:
        return self.guarantee.level == "certified"

    def to_json(self) -> str:
        """The one way to write this certificate: sorted keys, shortest numbers, no NaN or infinity."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parse_certificate(text: bytes, *, where: object = "certificate.json") -> Certificate:
    """Read a certificate that anyone may have written; whatever is wrong with it is named."""
    if len(text) > LARGEST:
        raise _refused(f"Expected a certificate of at most {LARGEST} bytes, got {len(text)}.", where)
    try:
        # of two equal keys the schema's parser keeps the last, and other readers may keep the first
        json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise _refused("Expected plain JSON in the certificate, got deep nesting.", where) from None
    except ValueError as error:
        raise _refused(f"Expected valid JSON in the certificate: {printable(error)}.", where) from None
    try:
        return Certificate.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _refused(_first_problem(error), where) from None


def read_certificate(folder: Path | str) -> Certificate:
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
