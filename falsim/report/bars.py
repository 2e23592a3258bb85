"""Where a step's time goes, as one bar per architecture on a common scale; readable without colour."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from falsim.report.breakdown import breakdown
from falsim.report.wording import Scale
from falsim.simulate import ArchitectureResult


@dataclass(frozen=True)
class Part:
    """How a part of a step is drawn: blocks compute, letters wait for communication, dots wait for the pipeline."""

    glyph: str
    title: str
    style: str


# Colours of Okabe and Ito's palette (jfly.uni-koeln.de/color), which people with colour-blindness can tell apart.
PARTS = {
    "matmul": Part("█", "matmul", "#0072B2"),
    "attention": Part("▓", "attention", "#56B4E9"),
    "elementwise": Part("▒", "element-wise", "#009E73"),
    "recompute": Part("░", "recompute", "#F0E442"),
    "tensor_communication": Part("T", "tensor-parallel comm.", "#D55E00"),
    "expert_communication": Part("X", "expert comm.", "#CC79A7"),
    "context_communication": Part("C", "context comm.", "#CC79A7"),
    "data_communication": Part("D", "data-parallel comm.", "#E69F00"),
    "pipeline_communication": Part("P", "pipeline comm.", "#E69F00"),
    "host": Part("h", "host", "white"),
    "pipeline_bubble": Part("·", "pipeline bubble", "white"),
    "optimizer": Part("o", "optimizer", "white"),
}
SHOWN = 0.001
"""The legend names parts that take at least this share of some step."""


def bars(results: tuple[ArchitectureResult, ...], scale: Scale, width: int) -> Text:
    """Lines of `width` columns: name, bar, step time; then the legend of the parts that occur."""
    longest = max(result.step_time_s for result in results)
    name = max(len(result.architecture) for result in results)
    time = max(len(scale.with_unit(result.step_time_s)) for result in results)
    cells = max(10, width - name - time - 4)
    text = Text()
    for result in results:
        text.append(f"{result.architecture:<{name}}  ")
        drawn = 0
        for part, count in _cells(breakdown(result), cells / longest).items():
            text.append(PARTS[part].glyph * count, style=PARTS[part].style)
            drawn += count
        text.append(f"{'':<{cells - drawn}}  {scale.with_unit(result.step_time_s):>{time}}\n")
    text.append_text(_legend(results, width))
    return text


def _legend(results: tuple[ArchitectureResult, ...], width: int) -> Text:
    """The parts that occur, broken into lines between entries only."""
    shown = [
        part
        for name, part in PARTS.items()
        if any(breakdown(result)[name] >= SHOWN * result.step_time_s for result in results)
    ]
    text, used = Text(), 0
    for part in shown:
        size = len(part.title) + 2
        if used:
            separator = "  " if used + 2 + size <= width else "\n"
            text.append(separator)
            used = 0 if separator == "\n" else used + 2
        text.append(part.glyph, style=part.style).append(f" {part.title}")
        used += size
    return text


def _cells(parts: dict[str, float], cells_per_second: float) -> dict[str, int]:
    """Cells by part in drawing order, rounded at the boundaries so that the bar's length is right."""
    counts, passed, drawn = {}, 0.0, 0
    for part in PARTS:
        passed += parts[part]
        counts[part] = round(passed * cells_per_second) - drawn
        drawn += counts[part]
    return counts
