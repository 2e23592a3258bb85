"""What a reader of one architecture's numbers has to know: which reading of an open question they follow."""

from __future__ import annotations

from falsim.scenario import Scenario

_FIRST_BLOCK = {
    "gpt": "block 1 is GPT's, its attention's output kept (first_block: gpt)",
    "fal": "block 1's MLP reads what later ones read (first_block: fal)",
}


def remarks(scenario: Scenario, architecture: str) -> tuple[str, ...]:
    """Remarks on one architecture, without its name."""
    parallel = scenario.parallelism
    match architecture:
        case "fal":
            return (_FIRST_BLOCK[scenario.implementation.first_block],)
        case "fal_plus":
            return ("g joins after the MLP's norm",)
        case "ladder":
            said = []
            if parallel.pipeline > 1:
                said.append("sends two tensors from stage to stage, where gpt sends one")
            if parallel.sequence and parallel.tensor > 1:
                said.append("under sequence parallelism its all-gathers stay exposed: only its reduce-scatters hide")
            if scenario.implementation.merge_partial_gradients:
                said.append("merges no gradients: a merged all-reduce would start too late to hide")
            return tuple(said)
        case "no_sync":
            return ("a bound, not a model: gpt with free tensor-parallel collectives",)
        case _:
            return ()
