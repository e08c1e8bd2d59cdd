"""An administrator's options of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_types import ConfigResource
from pylog.compat.kafka.enums import AlterConfigOp, ConfigFilterType, ConfigResourceType, ConfigSourceType
from pylog.compat.kafka.metadata import NODE
from pylog.compat.kafka.topic_options import FIELDS, MEANINGLESS, default_of, native_options, type_of, value_of
from pylog.compat.kafka.translation import Translating
from pylog.errors import PylogError

_BROKER = "0"
_DEFAULT = "DEFAULT_CONFIG"


class Resource(NamedTuple):
    """One resource with all its options, as version 2's answers have it."""

    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    config_entries: list[tuple[Any, ...]]


class Kind(str):
    """A kind of resource: a key of version 3's answer, and itself an answer of version 2.

    Attributes:
        resources: version 2's, with all options: version 2 has no filter.
    """

    __slots__ = ("resources",)
    resources: list[Resource]


class ConfigAnswer(dict[Any, Any]):
    """Options by kind and name, as version 3 returns them. Its items by number, and its keys, have version 2's `resources`."""

    def note(self, kind: ConfigResourceType, name: str, options: dict[str, Any], every: dict[str, Any]) -> None:
        """Adds a resource.

        Args:
            kind, name: the resource.
            options: those that the program asked for.
            every: all of them.
        """
        key = next((each for each in self if each == kind.name.lower()), None)
        if key is None:
            key = Kind(kind.name.lower())
            key.resources = []
            self[key] = {}
        key.resources.append(Resource(0, "", int(kind), name, [_as_tuple(option, found) for option, found in every.items()]))
        self[key][name] = options

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, int):
            raise KeyError(key)
        return list(self)[key]

    @property
    def resources(self) -> list[Resource]:
        """All resources, as the answer of the oldest versions has them."""
        return [resource for kind in self for resource in kind.resources]


def _as_tuple(option: str, found: dict[str, Any]) -> tuple[Any, ...]:
    return option, found["value"], found["read_only"], int(ConfigSourceType[found["config_source"]]), found["is_sensitive"], []


class ConfigsOfAdmin:
    """The calls of `KafkaAdminClient` for options."""

    _cluster: Cluster

    def describe_configs(
        self, config_resources: Iterable[ConfigResource], include_synonyms: bool = False, config_filter: Any = "modified"
    ) -> ConfigAnswer:
        """Returns the options of topics by kind, name and option.

        Args:
            config_resources: topics; their `configs` choose options. A broker has none to change.
            include_synonyms: there are none.
            config_filter: "modified", "dynamic" or "all".

        Returns:
            A topic that does not exist has no options.

        Raises:
            ValueError: a broker's name is no number.
        """
        chosen = ConfigFilterType.build_from(config_filter)
        found = ConfigAnswer()
        for resource in config_resources:
            options, every = (self._options_of(resource, each) for each in (chosen, ConfigFilterType.ALL))
            found.note(resource.resource_type, str(resource.name), options, every)
        return found

    def _options_of(self, resource: ConfigResource, chosen: ConfigFilterType) -> dict[str, Any]:
        if resource.resource_type is ConfigResourceType.BROKER:
            _check_broker(resource.name)
            return {} if chosen is ConfigFilterType.MODIFIED else dict(_OF_BROKER)
        if resource.resource_type is not ConfigResourceType.TOPIC:
            raise errors.UnsupportedVersionError(f"{resource.resource_type.name} needs a broker; topics have options here")
        if resource.name not in self._cluster.topics():
            return {}
        wanted = None if resource.configs is None else set(resource.configs)
        return {
            name: option
            for name, option in options_of_topic(self._cluster, resource.name).items()
            if (wanted is None or name in wanted) and _passes(chosen, is_modified=option["config_source"] != _DEFAULT)
        }

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Changes options of topics.

        Args:
            config_resources: topics, with values by option, or pairs of an `AlterConfigOp` and a value.
            validate_only: true to change nothing.
            raise_on_unknown: true to raise for an unknown option; false to return its error.
            incremental: options that are not named stay in any case.

        Returns:
            By kind and name, "OK" or the error as text.

        Raises:
            ValueError: an option or a topic does not exist.
        """
        found: dict[str, dict[str, str]] = {}
        for resource in config_resources:
            changes = _changes(resource.configs)
            unknown = set(changes) - self._options_known(resource)
            if unknown and raise_on_unknown:
                raise ValueError(f"Unrecognized configs: {unknown}")
            names = found.setdefault(resource.resource_type.name.lower(), {})
            names[resource.name] = self._altered(resource, changes, validate_only=validate_only)
        return found

    def _options_known(self, resource: ConfigResource) -> set[str]:
        """Returns the options that a resource has; a topic that does not exist has none."""
        exists = resource.resource_type is not ConfigResourceType.TOPIC or resource.name in self._cluster.topics()
        return {*FIELDS, *MEANINGLESS} if exists else set()

    def _altered(self, resource: ConfigResource, changes: dict[str, tuple[AlterConfigOp, Any]], *, validate_only: bool) -> str:
        try:
            if resource.resource_type is not ConfigResourceType.TOPIC:
                raise errors.InvalidRequestError(f"options of {resource.resource_type.name} cannot be changed here")
            alter_topic(self._cluster, resource.name, changes, validate_only=validate_only)
        except (errors.KafkaError, PylogError) as error:
            return str(error)
        return "OK"

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Restores the defaults of the options named in `configs`, as `alter_configs` does with DELETE."""
        resets = [
            ConfigResource(each.resource_type, each.name, dict.fromkeys(each.configs or (), (AlterConfigOp.DELETE, None)))
            for each in config_resources
        ]
        return self.alter_configs(resets, validate_only, raise_on_unknown, incremental)

    def list_config_resources(self, resource_types: Iterable[Any] | None = None) -> dict[str, list[str]]:
        """Returns the names of topics and of the one broker, by kind."""
        wanted = {ConfigResourceType.build_from(each) for each in resource_types or ()}
        found = {ConfigResourceType.TOPIC: sorted(self._cluster.topics()), ConfigResourceType.BROKER: [_BROKER]}
        return {kind.name.lower(): names for kind, names in found.items() if not wanted or kind in wanted}


def alter_topic(
    cluster: Cluster, name: str, changes: Mapping[str, tuple[AlterConfigOp, Any]], *, validate_only: bool = False
) -> None:
    """Changes options of a topic.

    Args:
        cluster: the topic's.
        name: the topic.
        changes: an operation and a value by Kafka's name of an option.
        validate_only: true to change nothing.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist. InvalidConfigurationError: an option does not exist, or its value
            is wrong.
    """
    with Translating(errors.InvalidConfigurationError):
        config = cluster.store.topic(name).config
        options, ignored = native_options({option: _new_value(config, option, *change) for option, change in changes.items()})
        if options and not validate_only:
            cluster.store.alter_topic(name, **options)
    if not validate_only:
        cluster.meaningless.setdefault(name, {}).update(ignored)


def options_of_topic(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    """Returns all options of a topic, by Kafka's names.

    Args:
        cluster: the topic's.
        name: the topic, which exists.
    """
    with Translating():
        config = cluster.store.topic(name).config
    kept = cluster.meaningless.get(name, {})
    values = {each: value_of(config, each) for each in FIELDS} | {each: kept.get(each, MEANINGLESS[each]) for each in MEANINGLESS}
    return {
        each: _option(value, _DEFAULT if value == default_of(each) else "DYNAMIC_TOPIC_CONFIG", type_of(each), False)
        for each, value in values.items()
    }


def _option(value: str | None, source: str, kind: str, read_only: bool) -> dict[str, Any]:
    return {
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": kind,
        "documentation": None,
    }


_OF_BROKER = {
    "node.id": _option(_BROKER, "STATIC_BROKER_CONFIG", "INT", True),
    "advertised.listeners": _option(f"PLAINTEXT://{NODE.host}:{NODE.port}", "STATIC_BROKER_CONFIG", "LIST", True),
}


def _check_broker(name: Any) -> None:
    """Raises ValueError for a broker's name that is no number, and InvalidRequestError for a broker that does not exist."""
    if int(name) != NODE.node_id:
        raise errors.InvalidRequestError(f"there is no broker {name}; the only one is {_BROKER}")


def _passes(chosen: ConfigFilterType, *, is_modified: bool) -> bool:
    if chosen is ConfigFilterType.STATIC:
        return False
    if chosen is ConfigFilterType.MODIFIED:
        return is_modified
    return not (chosen is ConfigFilterType.DEFAULT and is_modified)


def _changes(given: Any) -> dict[str, tuple[AlterConfigOp, Any]]:
    if not given:
        return {}
    if not isinstance(given, dict):
        raise TypeError("configs must be a dict of values, or of pairs of an operation and a value")
    return {
        name: (AlterConfigOp.build_from(change[0]), change[1]) if isinstance(change, tuple) else (AlterConfigOp.SET, change)
        for name, change in given.items()
    }


def _new_value(config: Any, name: str, operation: AlterConfigOp, value: Any) -> Any:
    """Returns an option's new value; None for its default."""
    if operation is AlterConfigOp.DELETE:
        return None
    if operation is AlterConfigOp.SET or name not in FIELDS:
        return value
    old = [each for each in str(value_of(config, name) or "").split(",") if each and each != str(value)]
    return ",".join([*old, str(value)] if operation is AlterConfigOp.APPEND else old)
