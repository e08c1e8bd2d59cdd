"""aiokafka's helper for TLS: programs call it before they create a client."""

from __future__ import annotations

import logging
import ssl
from typing import Any

LOGGER = logging.getLogger("pylog.compat")


def create_ssl_context(
    *,
    cafile: Any = None,
    capath: Any = None,
    cadata: Any = None,
    certfile: Any = None,
    keyfile: Any = None,
    password: Any = None,
) -> ssl.SSLContext:
    """Returns a context for TLS, which the clients ignore: there is no network.

    Args:
        cafile, capath, cadata: certificates of authorities, as for `ssl.create_default_context`.
        certfile, keyfile, password: the client's certificate and key.

    A machine without a broker often has no certificates. So files that do not exist are left out, with one line in the log.
    """
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
        if certfile is not None:
            context.load_cert_chain(certfile, keyfile, password)
    except FileNotFoundError:
        LOGGER.info("certificates are left out, because one of the files does not exist: there is no network that needs them")
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, capath=capath, cadata=cadata)
    return context
