"""kafka-python's own commands, as installed, on the layer: they print what they print with a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.kafka.harness import Broker
from support.kafka.programs import lines_of

PROGRAM = """
    import contextlib, functools, importlib.util, io, pprint, sys, types, warnings
    warnings.simplefilter("ignore")
    folder = importlib.util.find_spec("kafka").submodule_search_locations[0] + "/cli"
    server, layer = sys.argv[1], sys.argv[2] == "layer"
    if layer:
        import pylog.compat
        pylog.compat.install(topic_config={"retention_ms": 604_800_000})
        import kafka.admin
        for name in ("kafka.protocol", "kafka.protocol.consumer", "kafka.protocol.api_key"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["kafka.admin._acls"] = kafka.admin
        sys.modules["kafka.protocol.consumer"].OffsetSpec = kafka.admin.OffsetSpec
        sys.modules["kafka.protocol.api_key"].ApiKey = None
    spec = importlib.util.spec_from_file_location("commands", folder + "/__init__.py", submodule_search_locations=[folder])
    sys.modules["commands"] = importlib.util.module_from_spec(spec)
    import commands.admin, commands.consumer, commands.producer
    import kafka
    commands.admin.pprint = functools.partial(pprint.pprint, width=100_000)

    def admin(line):
        line, _, quiet = line.partition("#")
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                code = commands.admin.run_cli(["-b", server, *line.split()])
            except SystemExit as error:
                code = error
        print(">", line, code)
        print("" if quiet else out.getvalue() or err.getvalue())

    for line in sys.argv[3:]:
        if line.startswith("produce "):
            sys.stdin = io.StringIO(line.removeprefix("produce ").replace(" ", chr(10)))
            print(line, commands.producer.run_cli(["-b", server, "-t", "orders"]))
        elif line.startswith("consume "):
            real = kafka.KafkaConsumer
            group, count = line.split()[1:]
            class Ending(real):
                def __init__(self, **options):
                    super().__init__(auto_offset_reset="earliest", **options)
                    self.left = int(count)
                def __next__(self):
                    if not self.left:
                        raise KeyboardInterrupt
                    self.left -= 1
                    return super().__next__()
            commands.consumer.KafkaConsumer = Ending
            print(line, commands.consumer.run_cli(["-b", server, "-t", "orders", "-g", group]))
        else:
            admin(line)
"""
COMMANDS = """
    topics create -t orders #without output
    topics create -t orders
    topics list
    topics describe -t orders -t missing
    configs alter -r topic -n orders -c retention.ms=86400000
    configs alter -r topic -n orders -c retention.years=1
    configs alter -r topic -n orders -c retention.years=1 --allow-unknown
    configs alter -r topic -n orders -c retention.ms=soon
    configs alter -r topic -n missing -c retention.ms=1
    configs describe -r topic -n orders -c retention.ms
    configs describe -r topic -n orders --modified
    configs reset -r topic -n orders -c retention.ms
    configs describe -r topic -n missing
    configs list -r topic
    produce a b c
    consume billing 3
    groups list
    groups list-offsets -g billing
    groups list-offsets -g missing
    groups describe -g missing
    groups describe -g billing
    groups alter-offsets -g billing -o orders:0:1
    groups reset-offsets -g billing -p orders:0 -s earliest
    groups reset-offsets -g billing -p orders:0 --to-offset 2
    groups delete-offsets -g billing -p orders:0
    groups list-offsets -g billing
    groups delete -g billing -g missing
    partitions create -p orders:3 #without output
    partitions create -p orders:2
    partitions create -p missing:2
    partitions describe -t orders
    partitions list-offsets -p orders:2 -s latest
    partitions list-offsets -p orders:9 -s latest
    partitions list-offsets -t orders -s earliest
    partitions elect-leaders -t orders #without output
    partitions elect-leaders -p orders:9
    partitions list-reassignments
    partitions alter-reassignments -r orders:9=1
    partitions alter-reassignments -r orders:0=
    partitions delete-records -r orders:2:0
    partitions delete-records -r orders:2:100
    partitions delete-records -r orders:9:0
    topics delete -t orders
    topics delete -t orders
    topics list
"""


def lines(tmp_path: Path, place: str, server: str) -> list[str]:
    commands = [line.strip() for line in COMMANDS.strip().splitlines()]
    return [masked(line) for line in lines_of(PROGRAM, server, place, *commands, cwd=tmp_path)]


def masked(line: str) -> str:
    """A line without ids, and without the words of errors."""
    line = re.sub(r"'[0-9a-f]{8}-[0-9a-f-]{27}'", "ID", line)
    line = re.sub(r"('(?:leader_id|isr_nodes|replica_nodes)': \[?)1", r"\g<1>0", line)
    line = re.sub(r"^(\[Error -?\d+\] \w+: ).*", r"\1", line)
    line = re.sub(r"['\"](\[Error -?\d+\] \w+: ).*?['\"](?=[,}])", r"'\1'", line)
    return re.sub(r"(Replica list for|the brokers of) .*", "wrong brokers", line)


def test_the_commands_of_kafka_python_print_the_same_with_a_broker_and_with_the_layer(
    tmp_path: Path, broker: Callable[..., Broker]
) -> None:
    expected = lines(tmp_path, "broker", broker().bootstrap)
    found = lines(tmp_path, "layer", f"pylog://{tmp_path / 'store'}")
    assert found == expected
