"""The figures of a recipe: accuracy and losses against the steps of alignment, and pictures side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sfumato.experiments.recipe import Row
from sfumato.lab.pictures import ALARM, INK, save_figure, save_picture
from sfumato.values import Images

LOSSES = {"total": "total loss", "variation": "total variation loss"}
SIDE, ACROSS, DOWN, GAP, HEAD, MIDDLE = 64, 6, 4, 3, 26, 18


def draw_curve(rows: list[Row], scores: list[dict[str, Any]], path: Path, *, title: str) -> None:
    """Accuracy against k on the left axis of two panels, the total and the variation loss on the right ones."""
    points = sorted(_points(rows, scores), key=lambda p: p["steps"])
    if not points:
        return
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(f"{title} (lab only)", color=ALARM)
    steps = [p["steps"] for p in points]
    for panel, (loss, words) in zip(figure.subplots(1, 2), LOSSES.items(), strict=True):
        panel.errorbar(
            steps,
            [100 * p["accuracy"] for p in points],
            [100 * (p["error"] or 0) for p in points],
            color="tab:blue",
            marker="o",
            capsize=3,
        )
        panel.set_xlabel("steps of alignment, k")
        panel.set_ylabel("student accuracy, %", color="tab:blue")
        panel.set_xscale("symlog", linthresh=1)
        panel.set_xticks(steps, [str(k) for k in steps])
        known = [(p["steps"], p[loss]) for p in points if loss in p]
        right = panel.twinx()
        right.plot([k for k, _ in known], [v for _, v in known], color="tab:red", marker="s", linestyle="--")
        right.set_ylabel(words, color="tab:red")
    save_figure(figure, path)


def _points(rows: list[Row], scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A point for each k; a run without steps has the losses that another one began with."""
    losses_by_step = [found.get("losses", {}).get("value") for found in scores]
    begun: dict[str, float] = next((losses[0] for losses in losses_by_step if losses), {})
    points = []
    for row, found, losses in zip(rows, scores, losses_by_step, strict=True):
        student = found.get(row.student.key)
        if student is not None:
            last = losses[-1] if losses else begun
            losses = {name: last[name] for name in LOSSES if name in last}
            points.append(
                {
                    "steps": int(row.fact("steps")),
                    "accuracy": student["value"],
                    "error": student["standard_error"],
                    **losses,
                }
            )
    return points


def draw_pictures(lines: list[tuple[str, Images, Images, Images | None]], out: Path) -> None:
    """Private, released and public images of each cell; and the same without the private ones."""
    for name, private_too in (("figure.png", True), ("figure_without_private.png", False)):
        strips = [_strip(*line, private_too=private_too) for line in lines]
        sheet = Image.new("RGB", (max(s.width for s in strips), sum(s.height for s in strips)), "white")
        top = 0
        for strip in strips:
            sheet.paste(strip, (0, top))
            top += strip.height
        save_picture(sheet, out / name)


def _strip(caption: str, private: Images, released: Images, public: Images | None, *, private_too: bool) -> Image.Image:
    shown = [("PRIVATE: lab only", ALARM, private)] if private_too else []
    shown.append(("RELEASED", INK, released))
    if public is not None:
        shown.append(("PUBLIC", INK, public))
    panels = [Image.fromarray(_panel(images.pixels).numpy()) for _, _, images in shown]
    step = panels[0].width + MIDDLE
    strip = Image.new("RGB", (3 * step, panels[0].height + 2 * HEAD + MIDDLE), "white")
    pen, font = ImageDraw.Draw(strip), ImageFont.load_default(14)
    pen.text((2, 4), caption, fill=INK, font=font)
    for column, ((words, colour, _), panel) in enumerate(zip(shown, panels, strict=True)):
        pen.text((column * step + 2, HEAD + 4), words, fill=colour, font=font)
        strip.paste(panel, (column * step, 2 * HEAD))
    return strip


def _panel(pixels: Tensor) -> Tensor:
    """Some images, chosen at random, as one (h, w, 3)."""
    chosen = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))[: ACROSS * DOWN]
    zoom = max(1, SIDE // max(pixels.shape[2:]))
    large = pixels[chosen].repeat_interleave(zoom, 2).repeat_interleave(zoom, 3)
    height, width = large.shape[2:]
    sheet = torch.full((DOWN * (height + GAP), ACROSS * (width + GAP), 3), 255, dtype=torch.uint8)
    for place, image in enumerate(large):
        top, start = place // ACROSS * (height + GAP), place % ACROSS * (width + GAP)
        sheet[top : top + height, start : start + width] = image.expand(3, height, width).permute(1, 2, 0)
    return sheet
