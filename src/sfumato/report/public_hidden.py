"""The public page of images with a hidden attribute: what was hidden, and that nothing about it is proved."""

from __future__ import annotations

from pathlib import Path

from sfumato.release.hidden_verification import check_all_but_rows
from sfumato.report.release_files import refuse_broken, shown_files, template

LISTED = 100  # classes of a label on the page


def hidden_page(release: Path) -> str:
    """The page as HTML, from a folder whose files hold together."""
    facts, checks = check_all_but_rows(release)
    refuse_broken(release, checks)
    return template("public_hidden.html.jinja").render(
        **shown_files(release), f=facts, title=f"Images with {facts.hidden} hidden", listed=LISTED
    )
