"""Validates a scenario file piece by piece, so that one wrong value does not hide what else is wrong."""

import copy
from typing import Any

from pydantic import ValidationError

from falsim.scenario.report import Report
from falsim.scenario.written import ScenarioFile
from falsim.yaml_source import Data, Path

# What stands in for a required value that is missing or wrong, so that the rest can be checked.
_STAND_INS: dict[Path, Any] = {
    ("model",): {},
    ("cluster",): {"gpu": {}},
    ("cluster", "gpu"): {},
    ("training",): {"sequence_length": 1, "global_batch_size": 1},
    ("training", "sequence_length"): 1,
    ("training", "global_batch_size"): 1,
}


def validate(data: dict[str, Data], report: Report) -> ScenarioFile:
    """Validate the keys and values of a scenario file.

    Wrong values are reported, marked as unknown and replaced by their default or a stand-in until the rest is valid.
    """
    repaired = copy.deepcopy(data)
    while True:
        try:
            return ScenarioFile.model_validate(repaired)
        except ValidationError as error:
            # Unknown keys first: the key they were meant to be is then not called missing as well.
            for details in sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden"):
                path = report.add_validation_error(details)
                _repair(repaired, path)


def _repair(data: dict[str, Any], path: Path) -> None:
    """Take the value at `path` out, or put its stand-in there; cuts away the parent when neither is possible."""
    while len(path) > 1:
        parent = _at(data, path[:-1])
        missing = isinstance(parent, dict) and path[-1] not in parent and path not in _STAND_INS
        if isinstance(parent, dict) and not missing:
            break
        path = path[:-1]
    parent = _at(data, path[:-1])
    if path in _STAND_INS:
        parent[path[-1]] = copy.deepcopy(_STAND_INS[path])
    else:
        parent.pop(path[-1], None)


def _at(data: Any, path: Path) -> Any:
    """The value at `path`; None where there is none."""
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data
