"""The window on a directory: web pages of topics, records and groups, in a browser of this machine. Needs the extra `ui`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from pylog.errors import IllegalStateError
from pylog.extras import install_command

if TYPE_CHECKING:
    from pylog.ui.watch import Watch

__all__ = ["application"]


class _Measures(Protocol):
    def watch(self) -> Watch: ...


class _MeasuredStore(Protocol):
    _measures: _Measures


def application(
    store: _MeasuredStore, *, token: str | None = None, hosts: Collection[str] | None = None, hide_values: bool = False
) -> Any:
    """Returns the window on a store as an ASGI application, to mount in a service of your own. It only reads.

    Args:
        store: a store, opened for reading or writing. It must stay open as long as the application is mounted.
        token: requests must have it, as a cookie or a bearer token. Default: none, because the service around it decides who may
            come in. Everyone who reaches the pages can read all records.
        hosts: the names under which the pages may be asked for. Default: all, because the service around it checks them.
        hide_values: true to show sizes in the place of values, and not to search them.

    Returns:
        An ASGI application. All links of its pages stay below the path where it is mounted.

    Raises:
        IllegalStateError: the extra `ui` is not installed.

    Cost: while a page is open, one refresh of each partition in two seconds, and at most a tenth of a core.

    Examples:
        >>> import pylog, pylog.ui, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     callable(pylog.ui.application(store))
        True
    """
    try:
        from pylog.ui.app import made_application
    except ModuleNotFoundError as error:
        raise IllegalStateError(f"the window requires {error.name}; install it: {install_command('ui')}") from error
    return made_application(store._measures.watch(), token=token, hosts=hosts, hide_values=hide_values)
