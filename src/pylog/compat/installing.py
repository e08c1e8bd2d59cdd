"""Puts the layer's modules in the place of the real packages, and takes them out again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from pylog.compat.clusters import CLUSTERS, ClusterSettings
from pylog.compat.modules import OUR_MODULES, modules_below
from pylog.errors import IllegalStateError, InvalidArgumentError

PACKAGES: Final = tuple(OUR_MODULES)
_MOST_NAMED: Final = 5


class _Finder(MetaPathFinder):
    """Refuses modules of an installed package that the layer does not have: the real ones must not be mixed with it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002 - an interface
        """Raises ImportError for such a module."""
        package = fullname.partition(".")[0]
        if package in _installed:
            raise ImportError(
                f"pylog.compat has no network, so there is no {fullname}; uninstall it to use the real one", name=fullname
            )
        return None


_installed: dict[str, dict[str, ModuleType]] = {}  # by package, what is in `sys.modules`
_finder: Final = _Finder()


def install_only(packages: Iterable[str], directory: Any, given: Mapping[str, Any]) -> None:
    """Installs the layers of some packages. See `pylog.compat.install`.

    Args:
        packages: names of real packages.
        directory: the store's directory, or None.
        given: other settings by name.
    """
    settings = _settings(directory, given)
    for package in packages:
        _check_absent(package)
    for package in packages:
        _put_in(package)
    CLUSTERS.settings = settings


def _settings(directory: Any, given: Mapping[str, Any]) -> ClusterSettings:
    known = set(ClusterSettings.__dataclass_fields__)
    wrong = sorted(set(given) - known)
    if wrong:
        raise InvalidArgumentError(f"unknown setting {', '.join(wrong)}; known: {', '.join(sorted(known))}")
    return ClusterSettings(directory=None if directory is None else str(directory), **given)


def _check_absent(package: str) -> None:
    """Raises IllegalStateError if the real package is imported."""
    known = sys.modules.get(package)
    if known is None or package in _installed:
        return
    real = known.__name__
    holders = [
        name
        for name, module in list(sys.modules.items())
        if not name.startswith(real) and isinstance(module, ModuleType) and any(_is_of(each, real) for each in _values(module))
    ]
    message = f"{', '.join(sorted(holders)[:_MOST_NAMED])} have its classes" if holders else "a module imported it"
    raise IllegalStateError(
        f"the real package {package!r} is imported already, and {message}; call install() before they are imported"
    )


def _values(module: ModuleType) -> list[Any]:
    return list(vars(module).values())


def _is_of(value: Any, package: str) -> bool:
    origin = getattr(value, "__module__", None) if isinstance(value, type) else getattr(value, "__name__", None)
    is_below = isinstance(origin, str) and (origin == package or origin.startswith(package + "."))
    return is_below and isinstance(value, type | ModuleType)


def ours_by_name(package: str) -> dict[str, ModuleType]:
    """Returns our modules by the names of the real package's modules, the package itself among them.

    Args:
        package: the real package's name, such as `kafka`.
    """
    found = {package: importlib.import_module(f"pylog.compat.{package}")}
    return found | {f"{package}.{name}": module for name, module in modules_below(package).items()}


def _put_in(package: str) -> None:
    if package in _installed:
        return
    found = _installed[package] = ours_by_name(package)
    sys.modules.update(found)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Closes the stores, and makes `import kafka` and `import aiokafka` mean the real packages again.

    Names that modules have imported stay.
    """
    CLUSTERS.close()
    CLUSTERS.settings = ClusterSettings()
    for package in list(_installed):
        for name, module in _installed.pop(package).items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def installed() -> tuple[str, ...]:
    """Returns the packages whose layers are installed."""
    return tuple(_installed)
