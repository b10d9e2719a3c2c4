"""The package's public names: sorted, there, and no more than promised."""

import pytest

import sfumato


def test_public_names_are_sorted_and_there() -> None:
    assert sorted(sfumato.__all__) == sfumato.__all__
    for name in sfumato.__all__:
        assert getattr(sfumato, name) is not None


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        _ = sfumato.nothing_of_the_kind
