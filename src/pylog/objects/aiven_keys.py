"""Unwraps the data keys of Aiven's encrypted segments with RSA keys of the user.

The plugin wraps each segment's AES key with RSA-OAEP, with SHA3-512 as the hash and for MGF1. OpenSSL refuses that combination,
so the padding is removed here: PKCS #1 (RFC 8017), section 7.1.2, over `hashlib` and the integers of the private key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Final

from pylog.arguments import check_kind
from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.extras import install_command
from pylog.fs import FileSystem, OsFileSystem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers

MISSING: Final = f"encrypted segments need the package `cryptography`; install it: {install_command('objects')}"
_DIGEST_BYTES: Final = hashlib.sha3_512().digest_size
_EMPTY_LABEL: Final = hashlib.sha3_512().digest()
_KEY_BYTES: Final = (16, 24, 32)  # of AES
_MOST_PEM_BYTES: Final = 64 << 10
_MOST_MODULUS_BITS: Final = 16_384


class KeyRing:
    """The user's RSA keys, by id. Its `repr` has the ids only.

    Args:
        keys: by key id, the path of a PEM file with a private key, or the PEM text itself as bytes.
        fs: reads the files.

    >>> KeyRing({"k1": "/etc/keys/k1.pem"})
    KeyRing('k1')
    """

    def __init__(self, keys: Mapping[str, str | bytes] | None = None, fs: FileSystem | None = None) -> None:
        check_kind("keys", keys, (Mapping, NoneType), "a mapping of ids to keys")
        given = dict(keys or {})
        for name, key in given.items():
            if not isinstance(name, str) or not isinstance(key, str | bytes):
                raise InvalidArgumentError(
                    f"keys has a {type(key).__name__} for {name!r}; give the path of a PEM file, or its bytes"
                )
        self._given = given
        self._fs = fs or OsFileSystem()
        self._loaded: dict[str, RSAPrivateNumbers] = {}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(map(repr, sorted(self._given)))})"

    def unwrapped(self, wrapped: str) -> bytes:
        """Returns a segment's data key.

        Args:
            wrapped: `<key id>:<base64>`, as in the segment's manifest.

        Raises:
            InvalidArgumentError: no key has that id, or the key is another one than the segment was encrypted with.
            StorageFailedError: the key's file cannot be read.
        """
        key_id, separator, text = wrapped.partition(":")
        if not separator:
            raise InvalidArgumentError("the data key has no key id")
        if key_id not in self._given:
            have = f"the given keys are {', '.join(map(repr, sorted(self._given)))}" if self._given else "no keys were given"
            raise InvalidArgumentError(f"it is encrypted with the key {key_id!r}, and {have}")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgumentError("the data key is not base64") from None
        key = _oaep_removed(self._numbers(key_id), data)
        if key is None or len(key) not in _KEY_BYTES:
            raise InvalidArgumentError(f"the given key {key_id!r} does not open it: it was encrypted with another key")
        return key

    def _numbers(self, key_id: str) -> RSAPrivateNumbers:
        found = self._loaded.get(key_id)
        if found is None:
            found = self._loaded[key_id] = _private_numbers(key_id, self._pem(key_id))
        return found

    def _pem(self, key_id: str) -> bytes:
        given = self._given[key_id]
        if isinstance(given, bytes):
            return given
        data = self._fs.read(given, _MOST_PEM_BYTES)
        if data is None:
            raise StorageFailedError(f"{given} does not exist; it was given as the key {key_id!r}", path=given)
        return data


def _private_numbers(key_id: str, pem: bytes) -> RSAPrivateNumbers:
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InvalidArgumentError(MISSING) from error
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):  # its message may quote the file
        key = None
    if not isinstance(key, RSAPrivateKey) or key.key_size > _MOST_MODULUS_BITS:
        raise InvalidArgumentError(f"the given key {key_id!r} is not an RSA private key in PEM form without a password")
    return key.private_numbers()


def _oaep_removed(key: RSAPrivateNumbers, data: bytes) -> bytes | None:
    """Returns the message in an OAEP block; None if the block was not made with this key."""
    modulus = key.public_numbers.n
    size, number = (modulus.bit_length() + 7) // 8, int.from_bytes(data, "big")
    if number >= modulus or size < 2 * _DIGEST_BYTES + 2:
        return None
    block = pow(number, key.d, modulus).to_bytes(size, "big")
    masked_seed, masked = block[1 : 1 + _DIGEST_BYTES], block[1 + _DIGEST_BYTES :]
    seed = _xor(masked_seed, _mask(masked, _DIGEST_BYTES))
    padded = _xor(masked, _mask(seed, len(masked)))
    message = padded[_DIGEST_BYTES:].lstrip(b"\0")
    sound = block[0] == 0 and hmac.compare_digest(padded[:_DIGEST_BYTES], _EMPTY_LABEL) and message[:1] == b"\1"
    return message[1:] if sound else None


def _mask(seed: bytes, size: int) -> bytes:
    """Returns MGF1's mask of a size (RFC 8017, B.2.1)."""
    counters = range(-(-size // _DIGEST_BYTES))
    return b"".join(hashlib.sha3_512(seed + counter.to_bytes(4, "big")).digest() for counter in counters)[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
