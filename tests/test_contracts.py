"""The kinds of thing that can be added, and the words for what a release is and promises."""

from __future__ import annotations

from typing import get_args

import pytest

from release.making import make_certificate, make_images
from sfumato import contracts
from sfumato.errors import UsageError
from sfumato.release import Certificate
from sfumato.values import CertificateLevel, GuaranteeLevel, ReleaseKind


def test_there_are_three_kinds_of_release_and_three_levels() -> None:
    assert get_args(ReleaseKind) == ("images", "model", "hidden-images")
    assert get_args(GuaranteeLevel) == ("certified", "empirical", "not-private")
    assert set(get_args(CertificateLevel)) < set(get_args(GuaranteeLevel))


def test_an_empirical_level_cannot_be_certified() -> None:
    values = make_certificate(make_images()).model_dump()
    Certificate.model_validate(values)
    for epsilon in (values["guarantee"]["epsilon"], None):
        empirical = {**values, "guarantee": {**values["guarantee"], "level": "empirical", "epsilon": epsilon}}
        with pytest.raises(ValueError, match=r"guarantee\.level"):
            Certificate.model_validate(empirical)


def test_a_kind_without_a_folder_has_no_names() -> None:
    assert isinstance(contracts.names("learners"), dict)
    with pytest.raises(UsageError, match="Expected one of the learners"):
        contracts.find("learners", "nothing")
