"""The JSON Schema of scenario files, for completion and checking in editors."""

from typing import Any

from falsim import catalog
from falsim.catalog import Kind
from falsim.scenario.written import ScenarioFile

# The catalogue's names that stand for each section which may be written as one name.
_NAMES: dict[str, tuple[Kind, ...]] = {
    "ModelFields": ("models",),
    "GpuFields": ("gpus",),
    "LinkFields": ("links",),
    "IntraNodeFields": ("nodes", "links"),
    "InterNodeFields": ("links",),
}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that a scenario file follows; rules between fields are not in it."""
    schema = ScenarioFile.model_json_schema()
    for section, kinds in _NAMES.items():
        fields = schema["$defs"][section]
        names = [name for kind in kinds for name in catalog.entries(kind)]
        named = {
            "description": "name of a preset, or one of its aliases",
            "anyOf": [{"enum": names}, {"type": "string"}],
        }
        fields["properties"]["preset"] = named
        schema["$defs"][section] = {"anyOf": [named, fields]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "falsim scenario"}
