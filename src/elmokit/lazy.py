"""Public names of a package, imported when they are first used.

The packages' ``__init__`` modules use it, so that importing one of them loads no torch:

    if TYPE_CHECKING:
        from elmokit.lm.perplexity import Perplexity, perplexity
    else:
        __getattr__, __dir__, __all__ = lazy_names(
            __name__, {"perplexity": "Perplexity perplexity"}
        )
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package in which importing a module does not hide the public name that it shares.

    ``elmokit.lm.perplexity`` is a function, in whatever order it and its module are imported.
    """

    _homes: Mapping[str, str]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)


def lazy_names(
    package: str, names: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: Its ``__name__``.
        names: For each module of the package, the public names that it defines, with spaces.
        modules: Subpackages that are public themselves.
    """
    module = sys.modules[package]
    homes = {name: f"{package}.{home}" for home, some in names.items() for name in some.split()}
    module._homes = homes  # type: ignore[attr-defined]
    module.__class__ = _Package

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes, *modules}), sorted(homes)
