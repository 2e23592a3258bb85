"""Scenarios: which architectures to price, for which model, on which cluster, trained how."""

import hashlib
import json

from falsim.scenario.json_schema import json_schema
from falsim.scenario.load import load_scenario
from falsim.scenario.schema import Scenario

__all__ = ["Scenario", "json_schema", "load_scenario", "scenario_hash"]


def scenario_hash(scenario: Scenario) -> str:
    """Sixteen hex digits that are equal for equal resolved scenarios (SHA-256 of its canonical JSON)."""
    canonical = json.dumps(scenario.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
