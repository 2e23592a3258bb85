"""`falsim catalog`: what is known of GPUs, links, nodes and models, and who says so."""

import io
import json
from typing import TYPE_CHECKING, Any, cast

import click

from falsim import catalog
from falsim.catalog.entries import DIMENSIONS
from falsim.catalog.parameters import parameter_count
from falsim.cli.output import table_shape, write_output
from falsim.units import format_quantity

if TYPE_CHECKING:
    from rich.table import Table

NARROWEST = 76
"""Columns a list needs to be read; a narrower terminal wraps its lines."""

_FORMAT = click.option(
    "--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group()
def command() -> None:
    """Show the presets a scenario can name, with the source of every number."""


@command.command("list")
@click.argument("kinds", nargs=-1, type=click.Choice(list(catalog.KINDS)))
@_FORMAT
def list_entries(kinds: tuple[catalog.Kind, ...], output_format: str) -> None:
    """List the entries of KINDS (gpus, links, nodes, models), or all."""
    chosen = kinds or tuple(catalog.KINDS)
    if output_format == "json":
        rows = [_as_json(entry) for kind in chosen for entry in catalog.entries(kind).values()]
        write_output(json.dumps(rows, indent=2, ensure_ascii=False), None)
        return
    _print(*(_list_table(kind) for kind in chosen))


@command.command("show")
@click.argument("name")
@_FORMAT
def show_entry(name: str, output_format: str) -> None:
    """Show every field of the entry called NAME, with its unit and source."""
    try:
        entry = catalog.find(name)
    except catalog.UnknownEntry as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    if output_format == "json":
        write_output(json.dumps(_as_json(entry), indent=2, ensure_ascii=False), None)
    else:
        notes: list[str] = []
        table = _show_table(entry, notes)
        _print(table, "\n".join(f"{number}  {note}" for number, note in enumerate(notes, start=1)))


def _as_json(entry: catalog.Entry) -> dict[str, Any]:
    """The entry in SI units, with its type, and a model's number of parameters."""
    derived = {"parameters": parameter_count(entry)} if isinstance(entry, catalog.Model) else {}
    fields = entry.model_dump(mode="json") | {"aliases": _aliases(entry)}
    return {"type": _type(entry), **fields, **derived}


def _aliases(entry: catalog.Entry) -> list[str]:
    """The other names of an entry, without the spellings of published tables that carry a remark in brackets."""
    return [alias for alias in entry.aliases if "(" not in alias]


def _type(entry: catalog.Entry) -> str:
    return type(entry).__name__.lower()


_COLUMNS: dict[catalog.Kind, tuple[str, ...]] = {
    "gpus": ("peak_flops", "memory", "memory_bandwidth", "thermal_design_power"),
    "links": ("kind", "bandwidth", "efficiency", "in_network_reduction"),
    "nodes": ("topology", "link", "between_pairs"),
    "models": ("num_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
}


def _list_table(kind: catalog.Kind) -> "Table":
    from rich.table import Table

    table = Table(title=kind, title_justify="left", title_style="bold")
    table.add_column("name", no_wrap=True)
    for column in _COLUMNS[kind]:
        table.add_column(_heading(column), overflow="fold")
    if kind == "models":
        table.add_column("10⁹ parameters", justify="right")
    for entry in catalog.entries(kind).values():
        cells = [_short(column, getattr(entry, column)) for column in _COLUMNS[kind]]
        if isinstance(entry, catalog.Model):
            cells.append(f"{parameter_count(entry) / 1e9:,.3f}")
        table.add_row(entry.name, *cells)
    return table


_HEADINGS = {
    "peak_flops": "peak bf16, else fp16",
    "memory_bandwidth": "bandwidth",
    "thermal_design_power": "power",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "KV heads",
    "intermediate_size": "MLP",
}


def _heading(column: str) -> str:
    return _HEADINGS.get(column, column.replace("_", " "))


def _short(field: str, value: Any) -> str:
    """A value in one cell; of the peaks, the one that training uses most."""
    if field == "peak_flops":
        value = next(value[precision] for precision in ("bf16", "fp16", "fp32") if precision in value)
    return _text(field, value)


def _show_table(entry: catalog.Entry, notes: list[str]) -> "Table":
    """Every field of an entry; the source column numbers the texts it puts into `notes`."""
    from rich.table import Table

    table = Table(title=f"{entry.title} ({_type(entry)})", title_justify="left", title_style="bold")
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", justify="right")
    table.add_row("name", entry.name, "")
    if aliases := _aliases(entry):
        table.add_row("aliases", ", ".join(aliases), "")
    for field in type(entry).model_fields:
        if field in ("name", "title", "aliases", "sources"):
            continue
        value = getattr(entry, field)
        source = "" if value is None else _note_number(entry.sources.get(field, entry.sources["*"]), notes)
        if isinstance(value, dict):
            for key, part in value.items():
                table.add_row(f"{field}.{key}", _text(field, part), source)
        else:
            table.add_row(field, _text(field, value), source)
    if isinstance(entry, catalog.Model):
        table.add_row("parameters", f"{parameter_count(entry):,}", _note_number("counted from the fields above", notes))
    return table


def _note_number(source: str, notes: list[str]) -> str:
    if source not in notes:
        notes.append(source)
    return str(notes.index(source) + 1)


def _text(field: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field in DIMENSIONS:
        return format_quantity(cast(float, value), DIMENSIONS[field], digits=4)
    if field == "price_per_hour":
        return f"{value:.2f} $/h"
    return str(value)


def _print(*contents: "Table | str") -> None:
    """Write tables and texts to stdout, as wide as the terminal but not narrower than NARROWEST."""
    from rich.console import Console

    width, color = table_shape()
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(NARROWEST, width),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for content in contents:
        console.print(content)
    write_output("".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines()), None)
