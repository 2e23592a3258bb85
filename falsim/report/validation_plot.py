"""Predicted against measured, as one self-contained HTML page."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from falsim.calibration.validate import Pair, Validation


class PlotlyMissing(Exception):
    """plotly is not installed."""

    def __init__(self) -> None:
        super().__init__("--plot needs plotly (pip install 'falsim[dashboard]')")


def require_plotly() -> None:
    """Raise PlotlyMissing where plotly cannot be imported."""
    if find_spec("plotly") is None:
        raise PlotlyMissing


def validation_html(validation: Validation) -> str:
    """Seconds predicted over seconds measured, a colour for each set, with lines for exact, ±10% and ±35%.

    Raises:
        PlotlyMissing: plotly is not installed.
    """
    require_plotly()
    go: Any = import_module("plotly.graph_objects")
    figure = go.Figure()
    for name in dict.fromkeys(pair.name for pair in validation.pairs):
        mine = [pair for pair in validation.pairs if pair.name == name]
        figure.add_trace(
            go.Scattergl(
                x=[pair.measured for pair in mine],
                y=[pair.predicted for pair in mine],
                text=[_label(pair) for pair in mine],
                mode="markers",
                name=name,
                hovertemplate="%{text}<br>measured %{x:.4g} s, predicted %{y:.4g} s<extra></extra>",
                visible=True if name not in ("collectives", "kernels") else "legendonly",
            )
        )
    if validation.pairs:
        low = min(min(pair.measured, pair.predicted) for pair in validation.pairs)
        high = max(max(pair.measured, pair.predicted) for pair in validation.pairs)
        for factor, dash, label in ((1.0, "solid", "exact"), (1.1, "dash", "±10%"), (1.35, "dot", "±35%")):
            for side, line in ((factor, True), (1.0 / factor, False)):
                style = {"color": "gray", "dash": dash, "width": 1}
                ends = [low, high]
                figure.add_scatter(
                    x=ends, y=[side * end for end in ends], mode="lines", line=style, name=label, showlegend=line
                )
    figure.update_layout(
        title=f"Predicted against measured, constants: {', '.join(validation.calibrations) or 'none'}",
        xaxis={"type": "log", "title": "measured, s"},
        yaxis={"type": "log", "title": "predicted, s"},
        template="plotly_white",
    )
    html: str = figure.to_html(include_plotlyjs=True, full_html=True, div_id="validation")
    return html


def _label(pair: Pair) -> str:
    error = 100.0 * (pair.predicted / pair.measured - 1.0)
    return f"{pair.id}: {error:+.1f}%"
