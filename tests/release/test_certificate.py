"""The closed schema: valid certificates survive a round trip, hostile ones are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from release.making import edit_certificate, make_certificate, make_images
from sfumato.errors import VerificationFailed
from sfumato.privacy import GaussianSum, NoisyChoice, ShardedAnswers, ShardedSums, mechanism_from_dict
from sfumato.release import Certificate, read_certificate
from sfumato.release.certificate import parse_certificate


def test_round_trip_with_every_mechanism() -> None:
    mechanisms = (
        GaussianSum(noise_multiplier=5.0, rounds=10, sampling=0.1),
        NoisyChoice(noise_multiplier=20.0, candidates=4),
        ShardedAnswers(noise_multiplier=5.0, shards=10, rounds=3),
        ShardedSums(noise_multiplier=5.0, shards=10, rounds=3),
    )
    certificate = make_certificate(make_images(), *mechanisms)
    again = parse_certificate(certificate.to_json().encode())
    assert again == certificate
    assert again.to_json() == certificate.to_json()
    assert tuple(mechanism_from_dict(m.described()) for m in again.mechanisms) == mechanisms


def test_text_is_canonical_json() -> None:
    text = make_certificate(make_images()).to_json()
    values = json.loads(text)
    assert list(values) == sorted(values)
    assert "NaN" not in text
    assert "Infinity" not in text


def test_it_is_frozen() -> None:
    certificate = make_certificate(make_images())
    with pytest.raises(ValidationError):
        certificate.guarantee = None  # type: ignore[assignment]


@pytest.mark.parametrize("level", ["certified", "not-private"])
def test_level_and_epsilon_must_agree(level: str) -> None:
    values = make_certificate(make_images()).model_dump()
    values["guarantee"] |= {"level": level, "epsilon": None if level == "certified" else 1.0}
    with pytest.raises(ValidationError, match="states"):
        Certificate(**values)


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            values = values[int(parent)] if parent.isdigit() else values[parent]
        values[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("surprise", 1),
        ("guarantee.epsilon", "1.0"),
        ("guarantee.epsilon", -1.0),
        ("guarantee.delta", 1.0),
        ("guarantee.level", "private enough"),
        ("format", "sfumato-release/2"),
        ("mechanisms", {}),
        ("mechanisms.0.kind", "laplace"),
        ("mechanisms.0.rounds", 0),
        ("mechanisms.0.rounds", 10**30),
        ("mechanisms.0.rounds", True),
        ("mechanisms.0.sampling", 1.5),
        ("mechanisms.0.sampling", 0),
        ("mechanisms.0.note", "hello"),
        ("mechanisms.0.noise_multiplier", -1),
        ("public.count", 0),
        ("public.classes", []),
        ("public.classes", [1]),
        ("public.channels", 40),
        ("public.mean", 0.5),
        ("method.hyperparameters", {"nested": {"a": 1}}),
        ("noise.private", "yes"),
        ("profile", [[1.0]]),
        ("profile", [[1.0, 2.0]]),
        ("samples.count", 1.5),
        ("versions", {"host": 3}),
        ("assumptions", ["x" * 3000]),
    ],
)
def test_a_wrong_field_is_named(release: Path, path: str, value: Any) -> None:
    edit_certificate(release, _set(path, value))
    with pytest.raises(VerificationFailed) as refused:
        read_certificate(release)
    assert path.split(".")[-1] in refused.value.what or path.split(".")[0] in refused.value.what
    assert refused.value.exit_code == 6
    assert len(refused.value.message().splitlines()) <= 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "valid JSON"),
        (b"{", "valid JSON"),
        (b"[1, 2", "valid JSON"),
        (b"\xff\xfe", "valid JSON"),
        (b"null", "schema"),
        (b"[]", "schema"),
        (b'{"format": "sfumato-release/1", "format": "sfumato-release/1"}', "'format' stands there twice"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' stands there twice"),
        (b'{"epsilon": NaN}', "NaN"),
        (b'{"epsilon": -Infinity}', "Infinity"),
        (b'{"epsilon": 1e999}', "too large"),
        (b"[" * 200_000, "nesting"),
        (b'{"a":' * 100_000, "nesting"),
        (b"1" * 5000, "valid JSON"),
        (b" " * (1 << 20) + b" {}", "at most"),
    ],
)
def test_hostile_json_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(VerificationFailed, match=complaint):
        parse_certificate(text)


def test_truncation_at_every_byte_is_refused(pristine: Path) -> None:
    text = (pristine / "certificate.json").read_bytes()
    for length in range(len(text.rstrip())):
        with pytest.raises(VerificationFailed):
            parse_certificate(text[:length])


def test_missing_or_linked_certificate(release: Path, tmp_path: Path) -> None:
    path = release / "certificate.json"
    path.rename(tmp_path / "elsewhere.json")
    with pytest.raises(VerificationFailed, match="readable"):
        read_certificate(release)
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(VerificationFailed, match="link"):
        read_certificate(release)
