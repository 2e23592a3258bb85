"""The block architectures falsim compares, each one short file that reads like its equation.

To add one: write its class in a file here and name it in `ARCHITECTURES`.
"""

from falsim.architectures.base import Architecture, Carried
from falsim.architectures.fal import Fal
from falsim.architectures.fal_plus import FalPlus
from falsim.architectures.gpt import Gpt
from falsim.architectures.ladder import Ladder
from falsim.architectures.no_sync import NoSync
from falsim.architectures.parallel import Parallel

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture for architecture in (Gpt(), Fal(), FalPlus(), Parallel(), Ladder(), NoSync())
}

__all__ = ["ARCHITECTURES", "Architecture", "Carried"]
