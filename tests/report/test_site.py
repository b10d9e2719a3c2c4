"""The pages of a store: right means and errors, names that stay text, and a folder that is never half there."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from release.making import edit_certificate
from report.fabricated import CHOICES, METHODS, fabricate, file_table, report_literature, score
from sfumato.errors import UsageError
from sfumato.lab.store import PUBLIC_TRIAL, Store, Stored
from sfumato.report.cell_page import release_command
from sfumato.report.charts import Axis, Point, Series, legend, lines, scatter
from sfumato.report.leaderboard import read_leaderboard
from sfumato.report.plots import csv_text
from sfumato.report.site import write_site, write_site_with

HOSTILE = "<script>alert('\"&1')</script>"


class Links(HTMLParser):
    """What a page refers to, and which tags it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "action", "poster")]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def of(cells: list[Stored], **wanted: object) -> list[Stored]:
    return [cell for cell in cells if all(cell.inputs()[name] == value for name, value in wanted.items())]


def value(cell: Stored, measure: str = "gen2real") -> float:
    return float(cell.measures()[measure]["value"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    fabricate(folder, methods=METHODS[:2], epsilons=(1.0, 10.0))
    beside = {
        "cell": "digits <- nothing, dp-merf, epsilon 1, mlp",
        "data": "digits",
        "epsilon": 1,
        "axes": {},
        "student": "mlp",
        "reported": 61.0,
    }
    other = {"by": "Doe 2024", "data": "digits", "epsilon": 10, "value": 72.5}
    elsewhere = {"by": "Doe 2024", "data": "faces", "epsilon": 10, "value": 99.0}
    report_literature(folder, measure="gen2real", rows=[other, elsewhere], beside=[beside])
    return folder


@pytest.fixture(scope="module")
def site(store: Path) -> Path:
    return write_site(store, store.with_name("site")).parent


def test_a_row_has_the_mean_and_the_standard_error_over_repeats(store: Path, site: Path) -> None:
    rows = rows_of((site / "data" / "leaderboard.csv").read_text("utf-8"))
    assert len(rows) == 4
    for row in rows:
        cells = of(list(Store(store).cells()), method=row["method"], epsilon=float(row["epsilon"]))
        values = [value(cell) for cell in cells]
        assert float(row["gen2real"]) == pytest.approx(statistics.fmean(values))
        assert float(row["gen2real standard error"]) == pytest.approx(statistics.stdev(values) / 2**0.5)
        assert row["repeats"] == "2"


def test_settings_size_and_versions_keep_lines_apart(tmp_path: Path) -> None:
    (cell,) = fabricate(tmp_path / "runs", methods=("dp-hp",), epsilons=(1.0,), repeats=1)
    for change in ({"settings": {"steps": "9"}}, {"count": 41}, {"sfumato": "0.2.0"}, {"data_content": "others"}):
        other = Store(tmp_path / "runs").cell({**cell.inputs(), **change})
        other.release.symlink_to(cell.release, target_is_directory=True)
        score(other, "gen2real", 0.5, "utility")
    board = read_leaderboard(tmp_path / "runs")
    assert [len(line.cells) for line in board.lines] == [1] * 5
    assert len({(line.data, line.settings) for line in board.lines}) == 5


def test_a_single_cell_has_the_error_of_its_measure_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    (cell,) = fabricate(tmp_path / "runs", methods=("dp-hp",), epsilons=(1.0,), repeats=1)
    score(cell, "kid", float("nan"), "fidelity")
    score(cell, "recall", None, "fidelity")
    board = read_leaderboard(tmp_path / "runs")
    assert board.lines[0].means["gen2real"].error == 0.02
    assert not {"kid", "recall"} & set(board.measures)


def test_of_two_statements_about_the_guarantee_the_weaker_one_counts(tmp_path: Path) -> None:
    cells = fabricate(tmp_path / "runs", methods=METHODS, epsilons=(1.0,), repeats=1)
    for cell, level in zip(cells, ("certified", "empirical", "who knows"), strict=True):
        path = cell.folder / "measures" / "made.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "guarantee": level}))
    levels = {line.method: line.level for line in read_leaderboard(tmp_path / "runs").lines}
    assert [levels[method] for method in METHODS] == ["certified", "empirical", "not-private"]


def test_attacks_come_from_the_labs_of_the_releases(tmp_path: Path) -> None:
    (cell,) = fabricate(tmp_path / "runs", methods=("dp-hp",), epsilons=(1.0,), repeats=1)
    lab = cell.folder / "release.lab"
    lab.mkdir()
    row = {
        "score": "attack-domias",
        "part_of": None,
        "value": 0.53,
        "standard_error": 0.01,
        "better": "lower",
        "judges": "privacy",
        "details": {},
    }
    part = {**row, "score": "attack-domias-tpr", "part_of": "attack-domias", "value": 0.125}
    (lab / "scores.json").write_text(json.dumps({"scores": [row, part], "left_out": {}}))
    site = write_site(tmp_path / "runs", tmp_path / "site").parent
    index = (site / "index.html").read_text("utf-8")
    assert "gen2real against attack-domias" in index
    page = (site / "cells" / f"{cell.digest}.html").read_text("utf-8")
    assert "attack-domias-tpr" in page
    assert "0.125" in page


def test_what_others_report_is_hollow_and_said_to_be_theirs(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    accuracy = index[index.index('id="accuracy"') : index.index('id="fidelity"')]
    figure = re.search(r'<svg [^>]*role="img".*?</svg>', accuracy, re.DOTALL)
    assert figure is not None
    assert figure[0].count('class="hollow') == 2  # the number beside our cell, and Doe's; faces are not in this store
    assert "reported by the paper: dp-merf, epsilon 1, 0.610" in figure[0]
    rows = rows_of((site / "data" / "accuracy-gen2real-digits.csv").read_text("utf-8"))
    assert [(row["by"], row["gen2real"]) for row in rows if row["by"] != "measured"] == [
        ("reported by the paper", "0.61"),
        ("reported by Doe 2024", "0.725"),
    ]


def test_every_figure_has_data_and_the_command(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    figures = re.findall(r'<figure class="chart">.*?</figure>', index, re.DOTALL)
    assert len(figures) >= 7
    for figure in figures:
        assert re.search(r'role="img" aria-label="[^"]{10,}"', figure)
        href = re.search(r'href="(data/[^"]+\.csv)"', figure)
        assert href is not None
        assert len(rows_of((site / href[1]).read_text("utf-8"))) > 0
        assert "sfumato report" in figure


def test_pages_refer_to_nothing_outside_and_every_link_leads_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 9
    for page in pages:
        for link in Links(page).found:
            if not link.startswith(("#", "data:text/csv")):
                assert (page.parent / unquote(link)).is_file(), (page, link)


def test_the_page_of_a_cell_states_what_was_asked(store: Path, site: Path) -> None:
    cell = next(Store(store).cells())
    text = (site / "cells" / f"{cell.digest}.html").read_text("utf-8")
    certificate = json.loads((cell.release / "certificate.json").read_text())
    for expected in (
        "mean embedding",
        "4.5",
        "at most one image",
        f"{certificate['guarantee']['epsilon']:.4g} of",
        "gen2real-mlp",
        "gen2real by class",
        "../previews/",
        "0.1.0",
        "sfumato release digits",
    ):
        assert expected in text, expected
    curve = re.search(r"data:text/csv[^\"]+", text[text.index("The curve") :])
    assert curve is not None
    points = rows_of(unquote(curve[0].partition(",")[2]))
    assert [[float(p["epsilon"]), float(p["delta"])] for p in points] == certificate["profile"]


def test_a_release_without_a_guarantee_says_so(tmp_path: Path) -> None:
    (cell,) = fabricate(tmp_path / "runs", methods=("dp-hp",), epsilons=(float("inf"),), repeats=1)

    def give_up(values: dict) -> None:
        values["guarantee"] |= {"level": "not-private", "epsilon": None, "epsilon_rdp": None}
        values["profile"], values["budget"]["epsilon"] = [], None

    edit_certificate(cell.release, give_up)
    site = write_site(tmp_path / "runs", tmp_path / "site").parent
    assert "There is no guarantee" in (site / "cells" / f"{cell.digest}.html").read_text("utf-8")
    index = (site / "index.html").read_text("utf-8")
    assert 'class="badge not-private"' in index
    assert 'data-v="Infinity"' in index
    assert "no privacy</text>" in index


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    runs = tmp_path / HOSTILE.replace("/", "")
    (cell,) = fabricate(
        runs,
        data=(HOSTILE,),
        methods=(HOSTILE,),
        publics=(HOSTILE,),
        epsilons=(1.0,),
        settings=({HOSTILE: HOSTILE},),
        repeats=1,
    )
    score(
        cell,
        "kid",
        0.5,
        HOSTILE,
        name=HOSTILE,
        details={"per_class": {HOSTILE: 0.5}},
        parts=[{"name": HOSTILE, "value": 0.5}],
    )
    report_literature(
        runs,
        measure=HOSTILE,
        beside=[],
        rows=[{"by": HOSTILE, "data": HOSTILE, "method": HOSTILE, "epsilon": 1, "value": 0.5}],
    )
    choice = {"group": HOSTILE, "chosen": HOSTILE, "cost": HOSTILE, "scores": {HOSTILE: 1}}
    file_table(runs, "b", title=HOSTILE, profile=HOSTILE, tuning={"sentence": HOSTILE, "choices": [choice]})
    site = write_site_with(runs, tmp_path / "site", {HOSTILE: {HOSTILE: HOSTILE}}).parent
    for page in site.rglob("*.html"):
        assert HOSTILE not in page.read_text("utf-8")
        assert Links(page).tags.count("script") == (1 if page.name == "index.html" else 0)
    assert all(re.fullmatch(r"[a-z0-9-]+\.csv", path.name) for path in (site / "data").iterdir())


def test_csv_has_no_formulas() -> None:
    assert csv_text(("a",), [("=1+1",), (-1.5,), ("@x",)]) == "a\n'=1+1\n-1.5\n'@x\n"


def test_totals_are_a_table_when_they_are_known(store: Path, site: Path, tmp_path: Path) -> None:
    assert "Cost together" in (site / "index.html").read_text("utf-8")
    assert "Cost together" not in write_site_with(store, tmp_path / "without", {}).read_text("utf-8")
    totals = {"digits": {"cells": 8, "epsilon": 31.41592, "delta": 1e-5, "tuning": "not charged"}}
    index = write_site_with(store, tmp_path / "site", totals).read_text("utf-8")
    assert "Cost together" in index
    assert "31.42" in index
    assert "not charged" in index


def comparisons_of(index: str) -> str:
    """What a reader sees of that section."""
    section = index[index.index('<section id="comparisons"') :].split("</section>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())


def test_comparisons_say_how_their_settings_were_chosen(tmp_path: Path) -> None:
    fabricate(tmp_path / "runs", methods=METHODS[:1], epsilons=(1.0,), repeats=1)
    assert "Comparisons in this store" not in write_site(tmp_path / "runs", tmp_path / "site").read_text("utf-8")
    tuned = {"how": "public", "sentence": "Settings were chosen on clouds, which is public.", "choices": CHOICES}
    file_table(tmp_path / "runs", "a-small", title="All <methods>", profile="small", tuning=tuned)
    file_table(tmp_path / "runs", "b-paper", rows=[])
    file_table(tmp_path / "runs", "c-paper", title="Odd", tuning="none")
    (tmp_path / "runs" / "tables" / "d").mkdir()
    (tmp_path / "runs" / "tables" / "d" / "table.json").write_text("[")
    index = write_site(tmp_path / "runs", tmp_path / "site").read_text("utf-8")
    assert 'href="#comparisons"' in index
    said = comparisons_of(index)
    assert "All <methods> Settings were chosen on clouds, which is public. Profile small, in tables/a-small ." in said
    assert (
        "for chosen scores cost of the choice digits, dp-merf, epsilon 1, mlp steps 500 "
        "steps 100: 0.512 steps 500: 0.710 steps 900: 0.700 nothing "
        "digits, dp-hp, epsilon 1, mlp bins 8 only the choice was asked for epsilon 0.3 b-paper"
    ) in said
    assert "b-paper Nothing was tuned. In tables/b-paper . Odd How settings were chosen is not known." in said
    assert "tables/d" not in said
    assert said.count("chosen scores cost") == 1


def test_a_trial_on_public_data_says_so(tmp_path: Path) -> None:
    (cell,) = fabricate(tmp_path / "runs", methods=("dp-hp",), epsilons=(1.0,), repeats=1)
    trial = Store(tmp_path / "runs").cell({**cell.inputs(), PUBLIC_TRIAL: True})
    trial.release.symlink_to(cell.release, target_is_directory=True)
    lines = {line.cells[0].digest: line.settings for line in read_leaderboard(tmp_path / "runs").lines}
    assert lines == {cell.digest: "", trial.digest: "a trial on public data"}


def test_broken_and_unfinished_cells_do_not_stop_the_others(tmp_path: Path) -> None:
    cells = fabricate(tmp_path / "runs", methods=METHODS, epsilons=(1.0,), repeats=1)
    (cells[0].release / "certificate.json").write_text("{}")
    (cells[1].release / "certificate.json").unlink()
    index = write_site(tmp_path / "runs", tmp_path / "site").read_text("utf-8")
    assert "Left out" in index
    assert cells[0].digest in index
    assert "1 not finished" in index
    assert f"cells/{cells[2].digest}.html" in index


def test_an_empty_store_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "runs" / "cells").mkdir(parents=True)
    assert "No cell of this store is finished" in write_site(tmp_path / "runs", tmp_path / "site").read_text("utf-8")
    with pytest.raises(UsageError, match="Expected a store"):
        write_site(tmp_path / "nothing", tmp_path / "site")


def test_only_pages_of_ours_are_replaced(store: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="older report"):
        write_site(store, mine)
    assert (mine / "letter.txt").read_text() == "dear"
    site = write_site(store, tmp_path / "site").parent
    (site / "old.txt").write_text("from before")
    write_site(store, site)
    assert not (site / "old.txt").exists()
    assert (site / "PRIVATE").exists()
    assert site.stat().st_mode & 0o077 == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "site"}  # nothing unfinished stays


def test_the_command_of_a_cell_is_what_a_user_types() -> None:
    inputs = {
        "data": "my faces",
        "method": "sfumato",
        "public": "scenes",
        "epsilon": 20.0,
        "delta": 1e-6,
        "count": 5,
        "size": None,
        "mode": None,
        "settings": {"steps": "9"},
        "repeat": 0,
        "reading": {"size": 32, "mode": "grey", "label": "sex", "classes": ["a", "b"], "skip_bad": True},
    }
    assert release_command(inputs) == (
        "sfumato release 'my faces' --method sfumato --epsilon 20 --delta 1e-06 --public scenes --count 5 --size 32 "
        "--mode grey --label sex --classes a,b --skip-bad --set steps=9 --i-know-epsilon-is-large --out my-release"
    )


def test_marks_are_to_scale_and_shapes_differ() -> None:
    series = [Series("a", [Point(0.1, 0.0), Point(1.0, 0.5), Point(10.0, 1.0, error=0.1)], 0), Series("b", [], 1)]
    svg = lines(series, x=Axis("epsilon", log=True), y=Axis("accuracy"), label="x")
    places = [(float(x), float(y)) for x, y in re.findall(r"translate\(([\d.]+) ([\d.]+)\)\"", svg)]
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.2)
    assert places[0][1] - places[1][1] == pytest.approx(places[1][1] - places[2][1], abs=0.2)
    assert svg.count("<polyline") == 1
    assert "<polyline" not in scatter(series, x=Axis("epsilon", log=True), y=Axis("accuracy"), label="x")
    many = [Series(str(k), [], k) for k in range(20)]
    marks = re.findall(r"<svg [^>]*>(.*?)</svg>", legend(many))
    assert len(set(marks)) == 20


@pytest.mark.parametrize("values", [(0.5,), (0.0,), (1e-9, 1e9), (-3.0, 5.0)])
def test_any_range_can_be_drawn(values: tuple[float, ...]) -> None:
    series = [Series("a", [Point(abs(v), v) for v in values] + [Point(float("inf"), values[0])])]
    for axis in (Axis("x", log=True), Axis("x", log=True, low=0.0)):
        svg = lines(series, x=axis, y=Axis("y"), label="")
        assert "nan" not in svg
        assert "inf" not in svg


def test_a_thousand_cells_have_all_their_pages(tmp_path: Path) -> None:
    cells = fabricate(tmp_path / "runs", settings=[{"steps": str(number)} for number in range(112)], repeats=1)
    assert len(cells) == 1008
    site = write_site(tmp_path / "runs", tmp_path / "site").parent
    index = (site / "index.html").read_text("utf-8")
    body = index[index.index("<tbody>") : index.index("</tbody>")]
    assert body.count("<tr ") == 1008
    assert "1,008" in index
    assert len(rows_of((site / "data" / "leaderboard.csv").read_text("utf-8"))) == 1008
    for cell in cells:
        assert f'href="cells/{cell.digest}.html"' in body
        assert (site / "cells" / f"{cell.digest}.html").read_text("utf-8").rstrip().endswith("</html>")
        assert (site / "previews" / f"{cell.digest}.png").stat().st_size > 0
    assert len(list((site / "cells").iterdir())) == 1008
    local = [link for link in Links(site / "index.html").found if not link.startswith("#")]
    assert len(local) >= 1008
    assert all((site / unquote(link)).is_file() for link in local)
