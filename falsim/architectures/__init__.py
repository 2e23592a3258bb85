"""The block architectures falsim compares, each one short file that reads like its equation.

To add one, write its class in a file here that has the architecture's name: nothing else has to know of it.
"""

from importlib import import_module
from pkgutil import iter_modules

from falsim.architectures.base import Architecture, Carried


def _written() -> dict[str, Architecture]:
    """Every architecture of this folder; raises ImportError where a file does not hold the one it is named for."""
    found = {}
    for module in iter_modules(__path__):
        if module.name == "base" or module.name.startswith("_"):
            continue
        members = vars(import_module(f"{__name__}.{module.name}")).values()
        named = [m for m in members if isinstance(m, type) and issubclass(m, Architecture)]
        own = [member for member in named if getattr(member, "name", None) == module.name]
        if len(own) != 1:
            raise ImportError(f"falsim/architectures/{module.name}.py must hold one Architecture named {module.name!r}")
        found[module.name] = own[0]()
    return found


ARCHITECTURES = _written()

__all__ = ["ARCHITECTURES", "Architecture", "Carried"]
