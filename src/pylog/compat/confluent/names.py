"""The options that confluent-kafka 2.16 has, by the kind of value that each one takes. Some have an effect here."""

from __future__ import annotations

from typing import Final

from pylog.limits import INT32_MAX
from pylog.log.arguments import ISOLATIONS


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    """Returns the least and the largest value of each option in a text of `name=least..largest`; `name=0..` goes to 2^31-1."""
    found = {}
    for each in text.split():
        name, _, values = each.partition("=")
        low, _, high = values.partition("..")
        found[name] = int(low), int(high or INT32_MAX)
    return found


ALIASES: Final = {  # a second name of an option: the name that the tables have
    "acks": "request.required.acks",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "retries": "message.send.max.retries",
    "delivery.timeout.ms": "message.timeout.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "compression.type": "compression.codec",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
}
NUMBERS: Final = _ranges("""
    api.version.fallback.ms=0..604800000 api.version.request.timeout.ms=1..300000 auto.commit.interval.ms=0..86400000
    batch.num.messages=1..1000000 batch.size=1.. broker.address.ttl=0..86400000 compression.level=-1..12
    connections.max.idle.ms=0.. consume.callback.max.messages=0..1000000 coordinator.query.interval.ms=1..3600000
    fetch.error.backoff.ms=0..300000 fetch.max.bytes=0..2147483135 fetch.min.bytes=1..100000000
    fetch.queue.backoff.ms=0..300000 fetch.wait.max.ms=0..300000 heartbeat.interval.ms=1..3600000 log_level=0..7
    max.in.flight.requests.per.connection=1..1000000 max.partition.fetch.bytes=1..1000000000
    max.poll.interval.ms=1..86400000 max.poll.records=1.. message.copy.max.bytes=0..1000000000
    message.max.bytes=1000..1000000000 message.send.max.retries=0.. message.timeout.ms=0..
    metadata.max.age.ms=1..86400000 metadata.recovery.rebootstrap.trigger.ms=0.. metadata.request.timeout.ms=10..900000
    offset.store.sync.interval.ms=-1..86400000 queue.buffering.backpressure.threshold=1..1000000
    queue.buffering.max.kbytes=1.. queue.buffering.max.messages=0.. queue.buffering.max.ms=0..900000
    queued.max.messages.kbytes=1..2097151 queued.min.messages=1..10000000 receive.message.max.bytes=1000..
    reconnect.backoff.jitter.ms=0..3600000 reconnect.backoff.max.ms=0..3600000 reconnect.backoff.ms=0..3600000
    request.required.acks=-1..1000 request.timeout.ms=1..900000 retry.backoff.max.ms=1..300000 retry.backoff.ms=1..300000
    sasl.kerberos.min.time.before.relogin=0..86400000 sasl.oauthbearer.assertion.claim.exp.seconds=1..
    sasl.oauthbearer.assertion.claim.nbf.seconds=0.. session.timeout.ms=1..3600000 socket.blocking.max.ms=1..60000
    socket.connection.setup.timeout.ms=1000.. socket.max.fails=0..1000000 socket.receive.buffer.bytes=0..100000000
    socket.send.buffer.bytes=0..100000000 socket.timeout.ms=10..300000 statistics.interval.ms=0..86400000
    sticky.partitioning.linger.ms=0..900000 test.mock.broker.rtt=0..3600000 test.mock.num.brokers=0..10000
    topic.metadata.propagation.max.ms=0..3600000 topic.metadata.refresh.fast.cnt=0..1000
    topic.metadata.refresh.fast.interval.ms=1..60000 topic.metadata.refresh.interval.ms=-1..3600000
    transaction.timeout.ms=1000..
""")
FLAGS: Final = frozenset(
    """
    allow.auto.create.topics api.version.request auto.commit.enable check.crcs delivery.report.only.error enable.auto.commit
    enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof
    enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections enable.ssl.certificate.verification
    log.connection.close log.queue log.thread.name produce.offset.report sasl.oauthbearer.assertion.claim.jti.include
    socket.keepalive.enable socket.nagle.disable topic.metadata.refresh.sparse
    """.split()  # noqa: SIM905 - a list would have a line for each name
)
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_CONTEXTS: Final = """
    generic broker topic metadata feature queue msg protocol cgrp security fetch interceptor plugin consumer admin eos mock
    assignor conf telemetry all
""".split()  # noqa: SIM905 - as above
CHOICES: Final[dict[str, tuple[str, ...]]] = {  # case does not count, but for those in EXACT
    "auto.offset.reset": ("smallest", "earliest", "beginning", "largest", "latest", "end", "error"),
    "broker.address.family": ("any", "v4", "v6"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ISOLATIONS,
    "metadata.recovery.strategy": ("none", "rebootstrap"),
    "offset.store.method": ("none", "file", "broker"),
    "partitioner": ("random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"),
    "queuing.strategy": ("fifo", "lifo"),
    "sasl.oauthbearer.assertion.algorithm": ("rs256", "es256"),
    "sasl.oauthbearer.grant.type": ("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
    "sasl.oauthbearer.metadata.authentication.type": ("none", "azure_imds", "aws_iam"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": _PROTOCOLS,
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
LISTS: Final[dict[str, tuple[str, ...]]] = {  # one or more of them, with commas between
    "debug": tuple(_CONTEXTS),
    "partition.assignment.strategy": ("range", "roundrobin", "cooperative-sticky"),
}
EXACT: Final = frozenset(("partitioner", "partition.assignment.strategy"))
FUNCTIONS: Final = frozenset(("error_cb", "oauth_cb", "stats_cb", "throttle_cb"))
TOPIC_OPTIONS: Final = "default.topic.config"  # a mapping of more options
_TEXTS: Final = frozenset(
    """
    bootstrap.servers broker.version.fallback builtin.features client.id client.rack client.software.name
    client.software.version group.id group.instance.id group.protocol.type group.remote.assignor https.ca.location
    https.ca.pem logger offset.store.path plugin.library.paths sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanisms sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    share.acknowledgement.mode ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list topic.blacklist transactional.id
    """.split()  # noqa: SIM905 - as above
)
NAMES: Final = frozenset((*ALIASES, *NUMBERS, *FLAGS, *CHOICES, *LISTS, *FUNCTIONS, TOPIC_OPTIONS, *_TEXTS))
