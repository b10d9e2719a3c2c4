"""The schema of hidden.json: one form, never the hidden attribute among the labels, no word of a guarantee."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from release.hidden_making import WEIGHTS, make_faces, make_facts
from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import HiddenFacts, checked_facts
from sfumato.release.hidden_facts import parse_hidden_facts

from wording import only_says_there_is_no_epsilon


def test_round_trip_in_one_canonical_form() -> None:
    for weights in (None, WEIGHTS):
        facts = make_facts(make_faces(), weights=weights)
        text = facts.to_json()
        assert parse_hidden_facts(text.encode()) == facts
        assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"
        assert json.loads(text)["format"] == "sfumato-hidden-images/1"
        assert json.loads(text)["level"] == "empirical"


def test_columns_are_in_the_order_of_their_names() -> None:
    facts = make_facts(make_faces())
    assert list(facts.labels) == ["gender", "age"]
    assert list(facts.subset.labels) == ["age", "gender"]
    assert list(parse_hidden_facts(facts.to_json().encode()).subset.labels) == ["age", "gender"]


def test_facts_without_labels_are_facts() -> None:
    facts = make_facts(make_faces(), labels={})
    assert parse_hidden_facts(facts.to_json().encode()) == facts


def _method(**changes: Any) -> dict[str, Any]:
    return {"name": "ce", "package_version": "0.1.0", "hyperparameters": {}, **changes}


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "the hidden attribute as a label": (lambda: {"labels": {"race": ("a", "b")}}, "other than the hidden attribute"),
    "the hidden attribute in capitals": (lambda: {"labels": {"RACE": ("a", "b")}}, "other than the hidden attribute"),
    "the hidden attribute in wide letters": (
        lambda: {"labels": {"\uff52ace": ("a", "b")}},
        "other than the hidden attribute",
    ),
    "the hidden attribute with a space": (lambda: {"labels": {" race": ("a", "b")}}, "other than the hidden attribute"),
    "an invisible character": (lambda: {"labels": {"ra\u200bce": ("a", "b")}}, "printable"),
    "a label called image": (lambda: {"labels": {"image": ("a",)}}, "names of their own"),
    "two labels of one name": (lambda: {"labels": {"age": ("a",), "Age": ("b",)}}, "names of their own"),
    "a class twice": (lambda: {"labels": {"age": ("a", "a")}}, "one name twice"),
    "a label without classes": (lambda: {"labels": {"age": ()}}, "at least 1 item"),
    "one value of the attribute": (lambda: {"values": ("a",)}, "at least 2 items"),
    "a level": (lambda: {"level": "certified"}, "empirical"),
    "a guarantee": (lambda: {"guarantee": 1.0}, "Extra inputs"),
    "two channels": (lambda: {"images": {"count": 1, "channels": 2, "height": 8, "width": 8}}, "channels"),
    "a path as weights": (lambda: {"weights": "/home/anna/sd, SHA-256 00"}, "pattern"),
    "a sentence as version": (lambda: {"method": _method(package_version="1, certified")}, "pattern"),
    "epsilon as method": (lambda: {"method": _method(name="ce (Epsilon 1)")}, "a word of a proved guarantee"),
    "epsilon as setting": (lambda: {"method": _method(hyperparameters={"epsilon": 1.0})}, "word of a proved guarantee"),
    "epsilon as a setting's value": (lambda: {"method": _method(hyperparameters={"a": "EPSILON"})}, "word of a proved"),
    "epsilon as class": (lambda: {"labels": {"letter": ("delta", "epsilon")}}, "word of a proved guarantee"),
    "epsilon as value": (lambda: {"values": ("delta", "epsilon")}, "word of a proved guarantee"),
    "differential privacy": (lambda: {"hidden": "differentially private race"}, "word of a proved guarantee"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    change, words = REFUSED[name]
    values = {**make_facts(make_faces()).model_dump(), **change()}
    with pytest.raises(ValidationError, match=words):
        HiddenFacts(**values)
    with pytest.raises(UsageError, match=words) as refused:
        checked_facts(**values)
    assert len(refused.value.message().splitlines()) == 2
    assert only_says_there_is_no_epsilon(refused.value.message())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "valid JSON in hidden.json"),
        (b"[" * 200_000, "nesting"),
        (b" " * (1 << 20) + b" {}", "at most"),
        (b"null", "hidden.json's schema"),
        (b'{"level": "empirical", "level": "certified"}', "stands there twice"),
        (b'{"images": {"count": NaN}}', "NaN"),
    ],
)
def test_hostile_json_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(VerificationFailed, match=complaint):
        parse_hidden_facts(text)


def test_truncation_at_every_byte_is_refused() -> None:
    text = make_facts(make_faces()).to_json().encode()
    for length in range(len(text.rstrip())):
        with pytest.raises(VerificationFailed):
            parse_hidden_facts(text[:length])


def test_numbers_are_numbers() -> None:
    plain = json.loads(make_facts(make_faces()).to_json())
    plain["images"]["count"] = "30"
    with pytest.raises(VerificationFailed, match=r"images\.count"):
        parse_hidden_facts(json.dumps(plain).encode())
