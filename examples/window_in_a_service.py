"""Mounts the window on a store in a service of its own, next to the service's other pages.

    python examples/window_in_a_service.py               # asks its own window once, and ends
    python examples/window_in_a_service.py --port 8000   # serves until it is interrupted: http://127.0.0.1:8000/log/

The service decides who may come in: put its own authentication in front of the mount. The window only reads.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import urllib.request

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import pylog
import pylog.ui


def take_order(store: pylog.Store) -> Route:
    """Returns a page of the service itself: it appends an order."""

    def order(request: Request) -> PlainTextResponse:
        store.log("orders").append(request.path_params["item"].encode())
        return PlainTextResponse("thank you\n")

    return Route("/order/{item}", order, methods=["POST"])


def service(store: pylog.Store) -> Starlette:
    """Returns the service, with the window below /log."""
    return Starlette(routes=[take_order(store), Mount("/log", app=pylog.ui.application(store))])


def ask_once(server: uvicorn.Server) -> None:
    """Starts a server, sends an order, prints what the window has of it, and ends the server."""
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    urllib.request.urlopen(urllib.request.Request(f"{url}/order/tea", method="POST")).close()
    with urllib.request.urlopen(f"{url}/log/topics/orders/records.jsonl") as answer:
        print(answer.read().decode().partition('"value"')[2].strip(':"}\n'))
    server.should_exit = True
    thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int)
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as directory, pylog.open(directory) as store:
        store.create_topic("orders")
        config = uvicorn.Config(service(store), port=port or 0, log_level="warning", lifespan="off")
        if port is None:
            ask_once(uvicorn.Server(config))
        else:
            uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
