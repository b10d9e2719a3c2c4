"""Every guarantee of the privacy core, checked on the core as it is."""

import pytest

import guarantees


@pytest.mark.parametrize("name", guarantees.CHECKS)
def test_guarantee(name: str) -> None:
    guarantees.CHECKS[name]()
