"""Turns what a file says about the model into a catalogue `Model`: a preset, a Hugging Face config, or fields."""

import json
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from falsim import catalog
from falsim.catalog.entries import Model
from falsim.scenario.fields import MAX_COUNT
from falsim.scenario.hugging_face import UnsupportedModel, from_hugging_face
from falsim.scenario.presets import given, look_up, on_top_of
from falsim.scenario.report import Report
from falsim.scenario.written import ModelFields
from falsim.yaml_source import MAX_BYTES, Path

MODEL: Path = ("model",)
_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads")


@dataclass(frozen=True)
class ResolvedModel:
    """A model and what was assumed about it, for people to read beside the results."""

    model: Model
    notes: tuple[str, ...] = ()


def resolve_model(fields: ModelFields, sequence_length: int, folder: FilePath, report: Report) -> ResolvedModel | None:
    """The model of a scenario; None when a problem was reported.

    A path in `from_config` is relative to `folder`. `sequence_length` is what an inline model's
    `max_position_embeddings` defaults to.
    """
    values = {name: value for name, value in given(fields).items() if name != "from_config"}
    if fields.preset is not None and fields.from_config is not None:
        message = f"preset {fields.preset} and from_config {fields.from_config} are both given (keep one of the two)"
        report.add(message, (*MODEL, "from_config"), (*MODEL, "preset"))
        return None
    if fields.preset is not None:
        preset = look_up(catalog.model, fields.preset, (*MODEL, "preset"), report)
        base = ResolvedModel(preset, _block_note(preset)) if preset is not None else None
    elif fields.from_config is not None:
        base = _from_config(folder / fields.from_config, report)
    else:
        base = _inline(values, sequence_length, report)
    if base is None:
        return None
    model = Model.model_validate(on_top_of(base.model, values) | values) if values else base.model
    return ResolvedModel(model, base.notes + _width_note(model, values))


def _inline(values: dict[str, Any], sequence_length: int, report: Report) -> ResolvedModel | None:
    """The model of the fields in the file alone, with GPT-2's conventions for those left out."""
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        report.add(f"{', '.join(missing)} missing (give them, a preset's name, or from_config: config.json)", MODEL)
        return None
    hidden_size, heads = values["hidden_size"], values["num_attention_heads"]
    if "head_dim" not in values and hidden_size % heads:
        message = f"{heads} heads do not divide hidden_size {hidden_size} (choose another number or give head_dim)"
        report.add(message, (*MODEL, "num_attention_heads"), (*MODEL, "hidden_size"))
        return None
    defaults = {
        "name": "custom",
        "title": "custom model",
        "sources": {"*": "the scenario file"},
        "num_key_value_heads": heads,
        "head_dim": max(1, hidden_size // heads),
        "intermediate_size": 4 * hidden_size,
        "vocab_size": 50257,
        "max_position_embeddings": sequence_length,
    }
    model = Model.model_validate(defaults | values)
    assumed = () if "vocab_size" in values else (f"model.vocab_size is not given: {model.vocab_size}, GPT-2's",)
    return ResolvedModel(model, assumed + _block_note(model))


def _from_config(path: FilePath, report: Report) -> ResolvedModel | None:
    """The model a Hugging Face config.json (or the folder that holds one) describes."""
    where = (*MODEL, "from_config")
    try:
        path = path / "config.json" if path.is_dir() else path
        if path.stat().st_size > MAX_BYTES:
            report.add(f"{path} is too large to be a config.json", where)
            return None
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        report.add(f"cannot read {path}: {error.strerror} (give the path of a Hugging Face config.json)", where)
        return None
    except RecursionError:
        report.add(f"{path} is JSON nested too deeply (give the path of a Hugging Face config.json)", where)
        return None
    except json.JSONDecodeError as error:
        report.add(f"{path} is not JSON: {error}", where)
        return None
    except UnicodeDecodeError:
        report.add(f"{path} is not UTF-8 text (give the path of a Hugging Face config.json)", where)
        return None
    except ValueError:
        report.add(f"{path} holds a number of too many digits", where)
        return None
    if not isinstance(config, dict):
        report.add(f"{path} holds no JSON object (give the path of a Hugging Face config.json)", where)
        return None
    try:
        model, notes = from_hugging_face(config, _name_of(path))
    except (UnsupportedModel, ValidationError) as error:
        report.add(f"{path}: {error}", where)
        return None
    for name, value in model:
        if isinstance(value, int) and value > MAX_COUNT:
            report.add(f"{path}: {name} is too large (at most {MAX_COUNT:,})", where)
            return None
    return ResolvedModel(model, notes)


def _name_of(path: FilePath) -> str:
    """What a config is called that does not name its model: its file's name, or its folder's for a config.json."""
    return path.stem if path.stem.lower() != "config" else path.resolve().parent.name


def _block_note(model: Model) -> tuple[str, ...]:
    if model.native_block == "serial":
        return ()
    return (f"{model.title}'s own block is parallel; gpt means its shapes in a serial block",)


def _width_note(model: Model, values: dict[str, Any]) -> tuple[str, ...]:
    """Fields on top of a preset override nothing else: say so where that leaves attention an unusual width."""
    width = model.num_attention_heads * model.head_dim
    if width == model.hidden_size or not values.keys() & {"num_attention_heads", "head_dim", "hidden_size"}:
        return ()
    heads = f"{model.num_attention_heads} heads × head_dim {model.head_dim}"
    return (f"attention is {width} wide ({heads}) and hidden_size is {model.hidden_size}",)
