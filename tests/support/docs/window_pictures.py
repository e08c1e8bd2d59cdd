"""Takes the pictures of the window that docs/how-to/window.md shows: `./dev pictures`."""

from __future__ import annotations

import importlib.util
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from pylog import OffsetsConfig, Store
from pylog.clock import ManualClock, SystemClock
from pylog.opening import open_store
from support.chromium import NARROW, Tab, chromium
from support.golden import data

PICTURES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
EXAMPLES: Final = PICTURES.parents[1] / "examples"
NOW_MS: Final = 1_790_607_720_000  # 2026-09-28, 14:02 UTC
WIDE: Final = (1_300, 640)
OBSERVATIONS: Final = 12
Pages = tuple[tuple[str, str, str, tuple[int, int]], ...]
MINUTES: Final = 60
STOPPED: Final = 14  # minutes ago
STATES: Final = ("created", "paid", "shipped")
SHOP: Final = (
    ("window-overview", "/", "light", WIDE),
    ("window-records", "/topics/orders?how=json&find=customer.id+%3D+42", "light", WIDE),
    ("window-group", "/groups/billing", "light", WIDE),
    ("window-phone", "/groups/billing", "dark", NARROW),
    ("window-segments", "/topics/orders/segments", "dark", WIDE),
)
DEMO: Final = (
    ("window-demo-records", "/topics/flights?how=json&find=dep_delay+%3E+900", "dark", WIDE),
    ("window-demo-record", "/topics/flights/0/1042", "light", WIDE),
)  # the directory of `./dev demo`
KAFKA: Final = (("window-broker", "/", "light", WIDE),)  # a directory of a Kafka broker


def fill(store: Store, clock: ManualClock) -> None:
    """An hour of a shop: one group keeps up, one falls behind, one has stopped."""
    chosen = random.Random(7)
    store.create_topic("orders", partition_count=4, segment_bytes=20_000)
    store.create_topic("payments", partition_count=2)
    store.create_topic("customers", cleanup_policy="compact", segment_bytes=8_000)
    for minute in range(MINUTES):
        clock.advance(max(0, NOW_MS - (MINUTES - minute) * 60_000 - clock.now_ms()))
        for _ in range(chosen.randrange(8, 20)):
            _order(store, clock, chosen)
        for group, last in (("billing", MINUTES - STOPPED), ("search-index", MINUTES), ("mailer", MINUTES)):
            if minute < last:
                held = 0 if group != "mailer" else minute // 6
                ends = {("orders", number): max(0, store.log("orders", number).end_offset - held) for number in range(4)}
                store.offsets.commit(group, ends)
    clock.advance(max(0, NOW_MS - clock.now_ms()))
    _order(store, clock, chosen)


def _order(store: Store, clock: ManualClock, chosen: random.Random) -> None:
    customer, total = chosen.choice((42, 17, 8, 23, 4)), chosen.randrange(400, 9_000) / 100
    given = {"customer": {"id": customer}, "state": chosen.choice(STATES), "total": total, "lines": [{"sku": "A-1", "count": 2}]}
    value = json.dumps(given)
    clock.advance(chosen.randrange(500, 2_500))
    log = store.log("orders", customer % 4)
    log.append(value.encode(), key=str(customer).encode(), timestamp=clock.now_ms(), headers=[("trace", b"7f3a")])
    store.log("payments", customer % 2).append(b'{"paid": %d}' % total, key=str(customer).encode(), timestamp=clock.now_ms())
    store.log("customers").append(b'{"id": %d}' % customer, key=str(customer).encode(), timestamp=clock.now_ms())


def main() -> None:
    """Writes the pictures."""
    PICTURES.mkdir(exist_ok=True)
    clock = ManualClock(NOW_MS - MINUTES * 60_000)
    with chromium() as browser, tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "shop"
        with open_store(path, clock=clock, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
            fill(store, clock)
            with store.serve_ui(port=0) as server:
                _take(browser, server.url, SHOP, lambda: _goes_on(store, clock))
        demo = _demo()
        demo.write(Path(directory) / "flights-demo", demo.flights_as_events())
        _show(browser, Path(directory) / "flights-demo", DEMO, ManualClock(NOW_MS))
        case = next(each for each in data.cases() if (each.version, each.name) == ("4.3.0", "groups"))
        _show(browser, case.log_directory, KAFKA, ManualClock(SystemClock().now_ms()))  # its commits are newer than `NOW_MS`


def _demo() -> ModuleType:
    """Returns the demo, which is a program and no package."""
    spec = importlib.util.spec_from_file_location("flights_demo", EXAMPLES / "flights_demo.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _goes_on(store: Store, clock: ManualClock) -> None:
    """Some seconds in which orders come in."""
    chosen = random.Random(clock.now_ms())
    for _ in range(chosen.randrange(1, 5)):
        _order(store, clock, chosen)
    clock.advance(3_000)


def _show(browser: object, directory: Path, pages: Pages, clock: ManualClock) -> None:
    with open_store(directory, "r", clock=clock) as store, store.serve_ui(port=0) as server:
        _take(browser, server.url, pages, lambda: clock.advance(3_000))


def _take(browser: object, url: str, pages: Pages, go_on: Callable[[], None]) -> None:
    """Takes pictures of pages, after some observations: rates and courses need more than one."""
    origin, _, rest = url.partition("/?")
    tab = Tab(browser, origin)  # type: ignore[arg-type]
    tab.go(f"/?{rest}")
    for _ in range(OBSERVATIONS):
        go_on()
        tab.go("/")
    tab.close()
    for name, path, scheme, size in pages:
        tab = Tab(browser, origin, scheme, size)  # type: ignore[arg-type]
        tab.go(f"/?{rest}")
        tab.go(path)
        tab.page.screenshot(path=str(PICTURES / f"{name}.png"), clip={"x": 0, "y": 0, "width": size[0], "height": size[1]})
        tab.close()


if __name__ == "__main__":
    main()
