"""Predicted against measured, as one self-contained HTML page."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from falsim.calibration.validate import Pair, Validation

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people of any colour vision tell apart."""
SYMBOLS = ("circle", "diamond-open", "x", "triangle-up", "square-open")


class PlotlyMissing(Exception):
    """plotly is not installed."""

    def __init__(self) -> None:
        super().__init__("--plot needs plotly (pip install 'falsim[dashboard]')")


def require_plotly() -> None:
    """Raise PlotlyMissing where plotly cannot be imported."""
    if find_spec("plotly") is None:
        raise PlotlyMissing


def validation_html(validation: Validation) -> str:
    """Seconds predicted over seconds measured, a colour and a symbol for each set; lines for exact, ±10% and ±35%.

    Raises:
        PlotlyMissing: plotly is not installed.
    """
    require_plotly()
    go: Any = import_module("plotly.graph_objects")
    figure = go.Figure()
    if validation.pairs:
        low = min(min(pair.measured, pair.predicted) for pair in validation.pairs)
        high = max(max(pair.measured, pair.predicted) for pair in validation.pairs)
        for factor, dash, label in ((1.0, "solid", "exact"), (1.1, "dash", "±10%"), (1.35, "dot", "±35%")):
            for side, shown in ((factor, True), (1.0 / factor, False)):
                style = {"color": "black", "dash": dash, "width": 1}
                ends = [low, high]
                figure.add_scatter(
                    x=ends, y=[side * end for end in ends], mode="lines", line=style, name=label, showlegend=shown
                )
    names = list(dict.fromkeys(pair.name for pair in validation.pairs))
    for place, name in enumerate(names):
        mine = [pair for pair in validation.pairs if pair.name == name]
        marker = {
            "color": COLOURS[place % len(COLOURS)],
            "symbol": SYMBOLS[place // len(COLOURS) % len(SYMBOLS)],
            "size": 6,
            "opacity": 0.6,
        }
        figure.add_trace(
            go.Scattergl(
                x=[pair.measured for pair in mine],
                y=[pair.predicted for pair in mine],
                text=[_label(pair) for pair in mine],
                mode="markers",
                marker=marker,
                name=name,
                hovertemplate="%{text}<br>measured %{x:.4g} s, predicted %{y:.4g} s<extra></extra>",
                visible=True if name not in ("collectives", "kernels") else "legendonly",
            )
        )
    axis = {"type": "log", "dtick": 1}
    figure.update_layout(
        title=f"Predicted against measured, constants: {', '.join(validation.calibrations) or 'none'}",
        xaxis={**axis, "title": "measured, s"},
        yaxis={**axis, "title": "predicted, s"},
        template="plotly_white",
        margin={"t": 60, "b": 60, "l": 70, "r": 20},
    )
    html: str = figure.to_html(
        include_plotlyjs=True, full_html=True, div_id="validation", default_height="95vh", config={"responsive": True}
    )
    return html


def _label(pair: Pair) -> str:
    error = 100.0 * (pair.predicted / pair.measured - 1.0)
    return f"{pair.id}: {error:+.1f}%"
