"""Alignment in two dimensions (DP-ImgSyn, Figure 5): points instead of images, made up, so nothing here is private."""

from __future__ import annotations

import json
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.experiments.recipe_format import Recipe
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import save_figure
from sfumato.synthesis.alignment import TargetStatistics, Weights, align, balanced_targets

COUNT, HIDDEN, TRAINING_STEPS, STEPS = 1_000, 32, 400, 60
LOW, HIGH = -1.0, 2.0  # a pixel of 0 and of 1 in the plane: public points may lie outside of the unit square
STUDENTS = 3


class Plane(nn.Module):
    """A small network on points (b, 2), which also shows its hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
        self.head = nn.Linear(HIDDEN, 2)

    def observed(self, points: Tensor) -> tuple[Tensor, list[Tensor]]:
        seen = []
        for layer in self.layers:
            points = layer(points)
            seen.append(points[:, :, None])
            points = torch.tanh(points)
        logits: Tensor = self.head(points)
        return logits, seen

    def forward(self, points: Tensor) -> Tensor:
        return self.observed(points)[0]

    def soft(self, points: Tensor) -> Tensor:
        return self.observed(points)[0].softmax(1)


def run_toy(recipe: Recipe, lab: Lab) -> dict[str, Any]:
    """The four panels, and how often each kind of student agrees with the teacher."""
    draw = torch.Generator().manual_seed(0)
    private = torch.rand(COUNT, 2, generator=draw)
    teacher = _learn(private, F.one_hot(_above(private).long(), 2).float(), seed=0)
    centres = torch.tensor([[0.25, 0.25], [0.75, 0.75]]).repeat(COUNT // 2, 1)
    public = (centres + 0.25 * torch.randn(COUNT, 2, generator=draw)).clamp(LOW, HIGH)
    aligned = _aligned(public, teacher, private, draw)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 101)] * 2)
    agreed, students = {}, {}
    for name, points in (("distillation", public), ("aligned", aligned)):
        made = [_learn(points, teacher.soft(points), seed=seed) for seed in range(1, STUDENTS + 1)]
        rates = torch.tensor([_agreement(student, teacher, grid) for student in made])
        students[name] = made[0]
        agreed[name] = {"value": float(rates.mean()), "standard_error": float(rates.std() / STUDENTS**0.5)}
    _draw(lab, teacher, students, private, public, aligned)
    document = {"title": recipe.title, "source": recipe.source, "agreement_with_the_teacher": agreed, "rows": []}
    lab.write("table.json", json.dumps(document, indent=2) + "\n")
    lines = [f"| {n} | {100 * a['value']:.2f} ± {100 * a['standard_error']:.2f} |" for n, a in agreed.items()]
    head = [
        f"# {recipe.title}",
        "",
        f"{recipe.source}. Made-up points: nothing here is private.",
        "",
        recipe.note,
        "",
        "| student | agreement with the teacher on the unit square, % |",
        "|---|---|",
    ]
    lab.write("table.md", "\n".join([*head, *lines, ""]))
    return document


def _above(points: Tensor) -> Tensor:
    """The paper's cubic is the border."""
    x, y = points.T
    side: Tensor = y > -1.4 * x**3 + 0.9 * x**2 + 0.34
    return side


def _learn(points: Tensor, targets: Tensor, *, seed: int) -> Plane:
    """A network that has learnt these probabilities."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Plane()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(TRAINING_STEPS):
        optimizer.zero_grad()
        F.cross_entropy(network(points), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network.requires_grad_(False)


def _aligned(public: Tensor, teacher: Plane, private: Tensor, draw: torch.Generator) -> Tensor:
    """Algorithm 1 on points written as images of two pixels; they have no neighbours, so no variation either."""

    def seen(images: Tensor) -> tuple[Tensor, list[Tensor]]:  # (b, 1, 1, 2) in [0, 1]
        return teacher.observed(images.flatten(1) * (HIGH - LOW) + LOW)

    images = ((public - LOW) / (HIGH - LOW) * 2 - 1)[:, None, None, :]
    goal = TargetStatistics.of(teacher.observed(private)[1])
    moved, _ = align(
        images,
        balanced_targets(len(images), 2),
        seen,
        goal,
        steps=STEPS,
        rate=0.01,
        weights=Weights(variation=0.0),
        form="paper",
        draw=draw,
    )
    return (moved.flatten(1) + 1) / 2 * (HIGH - LOW) + LOW


def _agreement(student: Plane, teacher: Plane, points: Tensor) -> float:
    return float((student.soft(points).argmax(1) == teacher.soft(points).argmax(1)).double().mean())


def _draw(
    lab: Lab, teacher: Plane, students: dict[str, Plane], private: Tensor, public: Tensor, aligned: Tensor
) -> None:
    figure = Figure(figsize=(9, 9), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2, sharex=True, sharey=True)
    above = _above(private)
    sides = [(private[above], "tab:green"), (private[~above], "tab:orange")]
    _panel(a, teacher, "teacher and its training points", sides)
    _panel(b, students["distillation"], "distillation on public points", [(public, "tab:red")])
    _panel(c, teacher, "teacher and aligned points", [(aligned, "magenta")])
    _panel(d, students["aligned"], "student of aligned points", [(aligned, "magenta")])
    save_figure(figure, lab.folder / "figure.png")


def _panel(axes: Axes, network: Plane, title: str, groups: list[tuple[Tensor, str]]) -> None:
    """Confidence as a heat map, the true border as a line, points on top."""
    low, high = -0.5, 1.5
    line = torch.linspace(low, high, 121)
    plane = torch.cartesian_prod(line, line)
    confidence = network.soft(plane)[:, 1].reshape(121, 121).T.numpy()
    extent = (low, high, low, high)
    axes.imshow(confidence, origin="lower", extent=extent, cmap="viridis_r", vmin=0, vmax=1, alpha=0.8)
    x = torch.linspace(0, 1, 101)
    axes.plot(x, -1.4 * x**3 + 0.9 * x**2 + 0.34, color="white", linewidth=2)
    axes.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0], color="white", linewidth=1, linestyle=":")
    for points, colour in groups:
        axes.scatter(points[:, 0], points[:, 1], s=6, color=colour)
    axes.set(title=title, xlim=(low, high), ylim=(low, high))
