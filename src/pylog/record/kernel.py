"""The one door to the kernels. A kernel has two forms with the same result: compiled code, and plain Python over the same arrays.

Plain Python runs first: loading the compiler takes half a second, and compiling a kernel about a second, while a thousand records
take a few milliseconds. The compiled form takes over when the work so far would have paid for it:

* after `CACHED_AFTER` records in this process, if the kernel is in numba's cache on disk;
* after `COMPILED_AFTER` records in the kernel, if it must be compiled;
* after `HEADERS_AFTER` headers of records that have many, even in the middle of a call.

A signal handler that interrupts a compilation gets the plain form. If numba cannot be loaded, as under a limit of memory, the
plain forms run for the rest of the process.

Callers do not choose. The environment variable `PYLOG_KERNELS` does: with `compiled` the compiled form runs from the first call
on, with `python` it never runs.

No thread compiles in the background: the compiler holds the GIL, so all other threads would wait as long as if they compiled
themselves. `pylog warm` fills the cache.

With NUMBA_DISABLE_JIT=1 the sources of the compiled forms run as Python, with each access to memory checked (`record.memory`).
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from importlib import import_module, resources
from typing import Any, Final, TypeVar

from pylog import trace
from pylog.clock import SystemClock
from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.fs import environment_variable, hold_over_forks
from pylog.record.kernel_cache import cache_of

Form = TypeVar("Form", bound=Callable[..., Any])

INTERPRETED: Final = (environment_variable("NUMBA_DISABLE_JIT") or "0") != "0"

SOURCES: Final = ("index", "record", "limits.py")  # files of the package that contain helpers and constants of kernels

# Measured: plain Python takes 2 to 5 µs a record; loading numba takes 400 ms and each kernel 20 ms from the cache, or about a
# second if it is compiled. The price is paid back when the plain form has taken about as long.
CACHED_AFTER: Final = 20_000
COMPILED_AFTER: Final = 500_000
HEADERS_AFTER: Final = 2_000_000  # plain Python takes 0.4 µs for each

CHOICES: Final = ("auto", "compiled", "python")

KERNELS: Final[list[Kernel]] = []

_LOADING: Final = threading.RLock()  # of numba, and of a kernel: a child that is forked meanwhile could do neither
_HELD: Final[list[Any]] = [_LOADING]  # and numba's own lock, once numba is loaded


def _choice_of_environment() -> str:
    choice = environment_variable("PYLOG_KERNELS") or "auto"
    if choice not in CHOICES:
        raise InvalidArgumentError(f"the environment variable PYLOG_KERNELS is {choice!r}; set it to one of {', '.join(CHOICES)}")
    return choice


class MoreWorkError(Exception):
    """A plain form has met more work than its arguments showed: the compiled form must make the call."""


class _Work:
    """The records that plain forms have processed in this process, and which form the user chose.

    Attributes:
        choice: one of `CHOICES`.
        records: the count of records.
        headers: the count of headers of records that have many.
        loader: the identifier of the thread that compiles or loads a kernel; 0 if none does.
        refusal: why no kernel can be compiled in this process; empty as long as none was refused.
    """

    def __init__(self) -> None:
        self.choice = _choice_of_environment()
        self.records = 0
        self.headers = 0
        self.loader = 0
        self.refusal = ""

    def add_headers(self, count: int) -> None:
        """Adds the headers of a record that a plain form reads. Compressed, millions of them take a kilobyte.

        Raises:
            MoreWorkError: the compiled form must make the call. The plain form has not changed its state.
        """
        self.headers += count
        may_compile = self.choice == "auto" and not self.refusal and self.loader != threading.get_ident()
        if self.headers > HEADERS_AFTER and may_compile:
            raise MoreWorkError

    def pays_for(self, kernel: Kernel, records: int) -> bool:
        """Adds a call's records; returns True if the compiled form of the kernel should take over."""
        if self.choice != "auto":
            return self.choice == "compiled"
        self.records += records
        kernel.records += records
        if self.records <= CACHED_AFTER or self.refusal:
            return False
        return kernel.records > COMPILED_AFTER or kernel.is_found()


WORK: Final = _Work()


def work_of(count: Callable[..., int]) -> Callable[[Form], Form]:
    """Declares how much work a call of a plain form is: `count` returns it in records. Default: one record."""

    def declare(form: Form) -> Form:
        form.work = count  # type: ignore[attr-defined]
        return form

    return declare


def _one_record(*_: Any) -> int:
    return 1


def kernel(signature: str, *, nogil: bool = True, pure: str | None = None) -> Any:
    """Declares a kernel with explicit types. The compiled form is cached on disk if possible.

    A kernel that runs less than about 10 µs keeps the GIL: among busy threads, taking it again costs more than the kernel.

    Args:
        signature: its types, as in `record.signatures`.
        nogil: release the GIL in the compiled form.
        pure: `module:function` of the plain form, which has the same arguments. Default: none, the kernel is compiled when first
            called.
    """

    def decorate(function: Any) -> Any:
        return function if INTERPRETED else Kernel(function, signature, nogil, pure)

    return decorate


@functools.cache
def source_digest() -> str:
    """Returns a digest of the sources of all kernels. Cost: 2 ms, once in a process."""
    digest = hashlib.blake2b(digest_size=8)
    for name in SOURCES:
        part = resources.files("pylog") / name
        files = sorted(part.iterdir(), key=lambda file: file.name) if part.is_dir() else [part]
        for file in files:
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


class Kernel:
    """A kernel, which calls one of its two forms.

    Attributes:
        py_func: the source of the compiled form.
        records: the records that the plain form has processed in this process.
    """

    def __init__(self, function: Any, signature: str, nogil: bool, home: str | None) -> None:
        self.py_func = function
        self.records = 0
        self._home = home
        self._signature = signature
        self._nogil = nogil
        self._compiled: Any = None
        self._pure: Any = None
        self._ask_again_after = -1
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        KERNELS.append(self)

    def __call__(self, *arguments: Any) -> Any:
        compiled = self._compiled
        if compiled is not None:
            return compiled(*arguments)
        pure = self.pure
        if pure is None or (WORK.pays_for(self, getattr(pure, "work", _one_record)(*arguments)) and not self._is_in_handler()):
            return self._compiled_or(pure)(*arguments)
        try:
            return pure(*arguments)
        except MoreWorkError:
            return self._compiled_or(pure)(*arguments)

    def _compiled_or(self, pure: Any) -> Any:
        """Returns the compiled form; the plain one if the compiler cannot be loaded and the user has not asked for it."""
        try:
            return self.compile()
        except StorageFailedError:
            if pure is None or WORK.choice == "compiled":
                raise
            return pure

    def _is_in_handler(self) -> bool:
        """Returns whether this is a signal handler that interrupted a compilation: numba cannot begin another one inside it."""
        return WORK.loader == threading.get_ident()

    @property
    def pure(self) -> Any:
        """The plain form; None if there is none."""
        if self._pure is None and self._home is not None:  # no `cached_property`: a fork would copy its lock while it is held
            module, _, name = self._home.partition(":")
            with _LOADING:  # an import, too, must not be cut in half by a fork
                self._pure = getattr(import_module(module), name)
        return self._pure

    def compile(self) -> Any:
        """Compiles the kernel, or loads it from numba's cache: once, even if several threads call it first at the same moment.

        Raises:
            StorageFailedError: the process does not have enough memory for it, or numba cannot be loaded. Not tried again: an
                import that failed half way leaves parts that the next one would trip over.
        """
        try:
            with _LOADING:
                outer, WORK.loader = WORK.loader, threading.get_ident()
                try:
                    return self._compiled or self._compile_or_refuse()
                finally:
                    WORK.loader = outer
        finally:
            trace.write_queued()

    def _compile_or_refuse(self) -> Any:
        if not WORK.refusal:
            try:
                return self._compile()
            except (ImportError, OSError, MemoryError) as error:
                WORK.refusal = str(error) or type(error).__name__
                trace.later(trace.COMPILER_REFUSED, kernel=self.__name__, reason=WORK.refusal)
        message = f"the kernel {self.__name__} cannot be compiled ({WORK.refusal})"
        raise StorageFailedError(f"{message}; give the process more memory, or install numba again, and start it again")

    def _compile(self) -> Any:
        """Compiles the kernel. numba's cache compares only the kernel's own file, so the kernel's name depends on the other
        files too: after an upgrade an old kernel would otherwise use old constants.
        """
        compiled = import_module("pylog.record.compiled")  # numba
        if compiled.LOCK not in _HELD:
            _HELD.append(compiled.LOCK)
        self.py_func.__qualname__ = f"{self.__name__}.{source_digest()}"
        begun = SystemClock.monotonic()
        self._compiled = compiled.compiled(self.py_func, self._signature, nogil=self._nogil)
        if not compiled.came_from_cache(self._compiled):
            seconds = round(SystemClock.monotonic() - begun, 2)
            trace.later(trace.KERNEL_COMPILED, kernel=self.__name__, seconds=seconds, cache=compiled.cache_path(self.py_func))
        return self._compiled

    def is_found(self) -> bool:
        """Returns whether numba's cache has the kernel. Asks the disk again after each `CACHED_AFTER` records of the kernel."""
        if self.records <= self._ask_again_after:
            return False
        self._ask_again_after = self.records + CACHED_AFTER
        return self.in_cache()

    def in_cache(self) -> bool:
        """Returns whether numba's cache has the kernel now. Does not import numba. Cost: about 0.2 ms."""
        return self.cache_directory() is not None

    def cache_directory(self) -> str | None:
        """Returns the directory where numba's cache has the kernel, or None."""
        with _LOADING:  # the digest reads the sources, for which Python imports more modules
            digest = source_digest()
        return cache_of(self.py_func.__code__.co_filename, self.__name__, digest)


# ---- helpers: functions that kernels call --------------------------------------------------------------------------------------


class Helper:
    """A function that only kernels call. numba gets it when it compiles the first kernel that calls it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._made = functools.cache(make)

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """The type that numba gives to this object, where it is a global of a kernel (numba's protocol for other objects)."""
        return import_module("pylog.record.compiled").type_of(self._made())

    def __call__(self, *arguments: Any) -> Any:
        return self._made()(*arguments)


def late(module: str, name: str) -> Any:
    """Declares a helper of a module that only the compiled forms need, and that imports numba or makes tables."""
    return Helper(lambda: getattr(import_module(module), name))


def inlined(function: Any) -> Any:
    """Declares a helper that is compiled into the kernels that call it."""
    return function if INTERPRETED else Helper(lambda: import_module("pylog.record.compiled").inlined(function))


def shared(function: Any) -> Any:
    """Declares a helper that kernels call: inlining a widely used helper would slow the compilation of its callers."""
    return function if INTERPRETED else Helper(lambda: import_module("pylog.record.compiled").shared(function))


# ---- forks ---------------------------------------------------------------------------------------------------------------------


def _hold() -> None:
    """Makes a fork wait while a thread loads numba or compiles: the child would never get the locks that the thread holds.

    `logging`, whose lock numba takes when it is imported, has registered its own wait before this one: `pylog.trace` imports it.
    A fork takes the locks in the reverse order.
    """
    for lock in _HELD:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_HELD):
        lock.release()


hold_over_forks(_hold, _release)
