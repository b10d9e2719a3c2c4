"""The figures of a study, drawn from the means over seeds: techniques, training time, epsilon, rounds of removal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sfumato.experiments.claims import Measured, Results
from sfumato.experiments.study_format import BASELINE, CUMULATIVE, SINGLE, Condition, Study
from sfumato.experiments.study_measures import mean_and_error
from sfumato.experiments.study_table import PERCENT, WORDS
from sfumato.judging.memorisation import marks
from sfumato.lab.pictures import ALARM, save_figure

CURVES = {  # of a training, with their colours
    "training accuracy": "tab:blue",
    "test accuracy": "tab:cyan",
    "auc": "tab:red",
    "membership probability": "tab:purple",
}
MARKERS = "osD^vPX*"
HEIGHT = 2.3  # inches of a panel

Series = tuple[str, float]  # data and epsilon


def draw(study: Study, conditions: list[Condition], results: Results, path: Path) -> None:
    """The figure of what is there; nothing is drawn before the first run."""
    there = [condition for condition in conditions if results.get(condition)]
    if not there:
        return
    kinds: dict[str, Callable[[Study, list[Condition], Results], Figure]] = {
        "techniques": _by_technique,
        "memorisation": _over_time,
        "grid": _by_epsilon,
        "outliers": _by_round,
    }
    figure = kinds[study.study](study, there, results)
    figure.suptitle(f"{study.title} (lab only)", color=ALARM)
    save_figure(figure, path)


def _by_technique(study: Study, there: list[Condition], results: Results) -> Figure:
    """A row for each measure; on the left techniques one after another, on the right one by one."""
    figure = Figure(figsize=(13, HEIGHT * len(study.measure) + 1.2), layout="constrained")
    panels = figure.subplots(len(study.measure), 2, sharex="col", sharey="row", squeeze=False)
    series = list(dict.fromkeys((condition.data, condition.epsilon) for condition in there))
    known = {(c.data, c.epsilon, c.techniques): results[c] for c in there}
    for column, (plan, words) in enumerate(((CUMULATIVE, "one after another"), (SINGLE, "one by one"))):
        for row, measure in enumerate(study.measure):
            axes = panels[row][column]
            for number, (data, epsilon) in enumerate(series):
                found = [
                    (place, known[data, epsilon, t]) for place, t in enumerate(plan) if (data, epsilon, t) in known
                ]
                shift = (number - (len(series) - 1) / 2) * 0.8 / len(series)  # bars of one technique stand side by side
                _bars(
                    axes,
                    [place + shift for place, _ in found],
                    [runs for _, runs in found],
                    measure,
                    number,
                    len(series),
                    _named(data, epsilon),
                )
            _floor(axes, measure)
            axes.set_xticks(range(len(plan)), [_short(name, plan) for name in plan])
            if column == 0:
                axes.set_ylabel(_label(measure), fontsize="small")
        panels[0][column].set_title(f"techniques {words}", fontsize="medium")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _bars(
    axes: Axes,
    places: list[float],
    runs: list[Mapping[int, Measured]],
    measure: str,
    number: int,
    count: int,
    label: str,
) -> None:
    values = [mean_and_error([_scaled(measure, run.value[measure]) for run in mine.values()]) for mine in runs]
    axes.bar(
        places,
        [mean for mean, _ in values],
        0.75 / count,
        yerr=[error or 0.0 for _, error in values],
        color=f"C{number}",
        error_kw={"linewidth": 0.8},
        label=label,
    )


def _over_time(study: Study, there: list[Condition], results: Results) -> Figure:
    """A panel for each condition: accuracies, AUC and one record's membership probability against epochs."""
    across = min(2, len(there))
    down = math.ceil(len(there) / across)
    figure = Figure(figsize=(6.5 * across, 3.4 * down + 1), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes, condition in itertools.zip_longest(panels.flat, there):
        if condition is None:
            axes.set_axis_off()
            continue
        runs = list(results[condition].values())
        epochs = [runs[0].epochs * row["done"] for row in runs[0].rows]
        for name, colour in CURVES.items():
            points = [mean_and_error([run.rows[at][name] for run in runs]) for at in range(len(epochs))]
            means, errors = [mean for mean, _ in points], [error or 0.0 for _, error in points]
            axes.errorbar(epochs, means, errors, color=colour, marker=".", capsize=2, linewidth=1.2, label=_label(name))
        losses = [mean_and_error([run.rows[at]["validation loss"] for run in runs])[0] for at in range(len(epochs))]
        found = marks(losses)
        if found.early_stop is not None:
            axes.axvline(epochs[found.early_stop], color="tab:green", linestyle="--", label="early stop")
        if found.over_fit is not None:
            axes.axvline(epochs[found.over_fit], color="black", linestyle=":", label="over-fitted")
        axes.axhline(0.5, color="lightgrey", linewidth=0.8, zorder=0)
        axes.set(title=_wrapped(condition), xlabel="epochs", ylim=(0, 1.02))
    by_label = {
        label: handle for axes in panels.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(by_label.values()), list(by_label), loc="outside lower center", ncols=3)
    return figure


def _by_epsilon(study: Study, there: list[Condition], results: Results) -> Figure:
    """A panel for each measure, against epsilon; training without privacy stands at the right end."""
    series = list(dict.fromkeys((c.data, c.techniques) for c in there))
    epsilons = sorted({condition.epsilon for condition in there})
    figure, panels = _row_of_panels(study.measure)
    for axes, measure in zip(panels, study.measure, strict=True):
        for number, (data, techniques) in enumerate(series):
            mine = sorted((c for c in there if (c.data, c.techniques) == (data, techniques)), key=lambda c: c.epsilon)
            places = [epsilons.index(condition.epsilon) for condition in mine]
            runs = [[run.value[measure] for run in results[condition].values()] for condition in mine]
            _line(axes, places, runs, measure, number, f"{data}, {_together(techniques)}")
        axes.set_xticks(range(len(epsilons)), ["none" if math.isinf(e) else f"{e:g}" for e in epsilons])
        axes.set(xlabel="epsilon (none: not private)", ylabel=_label(measure))
    return _with_legend(figure, panels)


def _by_round(study: Study, there: list[Condition], results: Results) -> Figure:
    """A panel for each measure, against the rounds of removal."""
    figure, panels = _row_of_panels(study.measure)
    for axes, measure in zip(panels, study.measure, strict=True):
        rounds = 0
        for number, condition in enumerate(there):
            runs = list(results[condition].values())
            count = min(len(run.rounds) for run in runs)
            rounds = max(rounds, count)
            values = [[run.rounds[at][measure] for run in runs] for at in range(count)]
            _line(axes, list(range(count)), values, measure, number, _wrapped(condition).replace("\n", ", "))
        axes.set_xticks(range(rounds))
        axes.set(xlabel="rounds of removal", ylabel=_label(measure))
    return _with_legend(figure, panels)


def _row_of_panels(measures: Sequence[str]) -> tuple[Figure, list[Axes]]:
    across = min(4, len(measures))
    down = math.ceil(len(measures) / across)
    figure = Figure(figsize=(max(7.0, 3.6 * across), 3.2 * down + 1.2), layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for spare in panels[len(measures) :]:
        spare.set_axis_off()
    return figure, panels[: len(measures)]


def _line(axes: Axes, places: list[int], values: list[list[float]], measure: str, number: int, label: str) -> None:
    points = [mean_and_error([_scaled(measure, value) for value in mine]) for mine in values]
    means, errors = [mean for mean, _ in points], [error or 0.0 for _, error in points]
    marker = MARKERS[number % len(MARKERS)]
    axes.errorbar(places, means, errors, color=f"C{number}", marker=marker, capsize=3, label=label)


def _with_legend(figure: Figure, panels: list[Axes]) -> Figure:
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return figure


def _floor(axes: Axes, measure: str) -> None:
    """A measure of attacks begins at guessing, so that small differences can be seen."""
    if measure.startswith("auc"):
        axes.set_ylim(bottom=0.45)
        axes.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")


def _short(techniques: str, plan: Sequence[str]) -> str:
    """BL, and then +OBS, ... or OBS, ..."""
    if techniques == plan[0]:
        return "BL"
    name = techniques.rpartition(",")[2].upper()
    return f"+{name}" if plan is CUMULATIVE else name


def _named(data: str, epsilon: float) -> str:
    return f"{data}, {'not private' if math.isinf(epsilon) else f'epsilon {epsilon:g}'}"


def _wrapped(condition: Condition) -> str:
    return f"{_named(condition.data, condition.epsilon)}\n{_together(condition.techniques)}"


def _together(techniques: str) -> str:
    return "no techniques" if techniques == BASELINE else techniques.replace(",", " + ")


def _label(measure: str) -> str:
    names = {
        **WORDS,
        "auc": "AUC",
        "tpr": "TPR at 0.1 % FPR",
        "membership probability": "one record's membership probability",
    }
    return names.get(measure, measure.replace("auc-", "AUC, "))


def _scaled(measure: str, value: float) -> float:
    return 100 * value if measure in PERCENT else value
