"""sfumato list: what there is."""

from __future__ import annotations

import json

import pytest

from commands import sfumato


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("methods", "dp-merf"), ("metrics", "nearest"), ("attacks", "nearest-neighbour"), ("datasets", "digits")],
)
def test_list_shows_what_there_is(kind: str, expected: str) -> None:
    outcome = sfumato("list", kind)
    assert outcome.code == 0
    assert expected in outcome.out
    assert expected in json.loads(sfumato("list", kind, "--json").out)
