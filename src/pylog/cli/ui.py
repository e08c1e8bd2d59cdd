"""`pylog ui`: a window on a directory, in the browser."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Final

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, command
from pylog.cli.exits import UsageError
from pylog.cli.output import print_json, write_data
from pylog.cli.stores import reading, writing
from pylog.extras import install_command

_LOOPBACK: Final = "127.0.0.1"


@command(CARE)
def ui(
    store: StorePath,
    /,
    *,
    host: str = _LOOPBACK,
    port: int | None = None,
    token: str | None = None,
    uds: str | None = None,
    allow_host: Annotated[list[str] | None, Parameter(name="--allow-host")] = None,
    write: Flag = False,
    hide_values: Annotated[bool, Parameter(name="--hide-values", negative="")] = False,
    json: Json = False,
) -> None:
    """Shows a directory in the browser: topics, records, segments, groups and their health.

    Only reads without --write, so a broker or other processes may be running on the directory. Prints the address to open,
    which has a token, and serves it until the command is interrupted.

    Args:
        store: Path of the log directory. A broker may be running on it.
        host: Address to listen on. One that other machines can reach needs --token.
        port: Port to listen on; 0 for any free one. Default: the first free one from 8055 on.
        uds: Path of a Unix socket to listen on, instead of an address, for a proxy on this machine. Only its owner may open
            it.
        token: Token that requests must have. Default: a random one.
        write: Let pages change the directory: set offsets of groups, append records, delete groups, records and topics, abort
            transactions. Each change is planned and confirmed, and opens the directory for writing only meanwhile.
        hide_values: Show sizes instead of values. Keys, headers' names, times and offsets stay. Values are not searched.
        allow_host: Another host name that requests may have, such as that of a proxy. May be repeated.
        json: Print the address as a JSON document.

    Examples:
        pylog ui shop
        pylog ui shop --port 8080
        pylog ui shop --write
        pylog ui shop --uds /run/shop/ui.sock --allow-host ops.example
    """
    if uds is not None and (port is not None or host != _LOOPBACK):
        raise UsageError("--uds cannot be combined with --host or --port")
    try:
        from pylog.monitoring.measured import measures_of
        from pylog.ui.server import WindowServer
    except ModuleNotFoundError as error:
        raise UsageError(f"the window requires {error.name}; install it: {install_command('ui')}") from error

    to_write = partial(writing, store) if write else None
    with (
        reading(store) as opened,
        WindowServer(
            measures_of(opened).watch(), host, port, token, allow_host or (), to_write, hide_values=hide_values, uds=uds
        ) as server,
    ):
        if json:
            print_json({"url": server.url})
        else:
            write_data(f"{server.url}\n")
        sys.stdout.flush()
        server.wait()
