"""Classes whose objects are made by a factory of the public interface, and not by calling the class."""

from __future__ import annotations

from typing import ClassVar


class FactoryMade:
    """Refuses a call of the class, and names the factory.

    The factory makes an object with `__new__`, and fills it in its own module.

    Args:
        factory: the public way to an object, such as "Store.log".

    >>> class Log(FactoryMade, factory="Store.log"): ...
    >>> Log()
    Traceback (most recent call last):
    TypeError: a Log cannot be created by calling its class; use Store.log
    """

    __slots__ = ()
    _factory: ClassVar[str]

    def __init_subclass__(cls, factory: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        if factory:
            cls._factory = factory

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError(f"a {type(self).__name__} cannot be created by calling its class; use {self._factory}")
