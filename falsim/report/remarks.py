"""What a reader of one architecture's numbers has to know: which reading of an open question they follow."""

from __future__ import annotations

from falsim.scenario import Scenario

_FIRST_BLOCK = {
    "gpt": "block 1 is GPT's, its attention's output kept (first_block: gpt)",
    "fal": "block 1's MLP reads what later ones read (first_block: fal)",
}


def remarks(scenario: Scenario, architecture: str) -> tuple[str, ...]:
    """Remarks on one architecture, without its name."""
    match architecture:
        case "fal":
            return (_FIRST_BLOCK[scenario.implementation.first_block],)
        case "fal_plus":
            return ("g joins after the MLP's norm",)
        case "no_sync":
            return ("a bound, not a model: gpt with free tensor-parallel collectives",)
        case _:
            return ()
