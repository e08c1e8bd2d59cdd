"""confluent-kafka's values about users and their rights. The calls that take them are refused: a store has no users."""

from __future__ import annotations

from dataclasses import dataclass

from pylog.compat.confluent.admin_types import AclOperation, ResourceType
from pylog.compat.confluent.model import Ordered


class ResourcePatternType(Ordered):
    """How a name stands for resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(Ordered):
    """Whether something is allowed."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ScramMechanism(Ordered):
    """A way to log in."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True)
class AclBinding:
    """A right.

    Attributes:
        restype, name, resource_pattern_type: the resource.
        principal, host: the user.
        operation, permission_type: what is allowed or denied.
    """

    restype: ResourceType
    name: str
    resource_pattern_type: ResourcePatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


@dataclass(frozen=True)
class AclBindingFilter(AclBinding):
    """The rights to find. The same attributes; None fits each one."""


@dataclass(frozen=True)
class ScramCredentialInfo:
    """How a user logs in.

    Attributes:
        mechanism, iterations: those of the password's hash.
    """

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True)
class UserScramCredentialsDescription:
    """A user's credentials.

    Attributes:
        user: the name.
        scram_credential_infos: the credentials.
    """

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(frozen=True)
class UserScramCredentialAlteration:
    """A change of a user's credentials.

    Attributes:
        user: the name.
    """

    user: str


@dataclass(frozen=True)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """The end of a credential.

    Attributes:
        mechanism: the credential.
    """

    mechanism: ScramMechanism


@dataclass(frozen=True)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A new credential.

    Attributes:
        scram_credential_info: the credential.
        password, salt: bytes.
    """

    scram_credential_info: ScramCredentialInfo
    password: bytes
    salt: bytes | None = None
