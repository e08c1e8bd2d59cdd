"""Words for a command line that is wrong: the cause, and the next step."""

from __future__ import annotations

from typing import Final

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from pylog.arguments import did_you_mean

_HELP: Final = "see `pylog COMMAND --help`"
_FORMS: Final[dict[tuple[str, ...], str]] = {
    ("config",): "--set",
    ("create",): "--config",
}  # the option that takes option=value, by command


def usage_text(error: CycloptsError) -> str:
    """Returns the message for a command line that is wrong.

    Args:
        error: as raised by the parser.
    """
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        return _unknown_command(error, error.unused_tokens[0])
    if isinstance(error, MissingArgumentError) and error.argument is not None and not error.argument.names[0].startswith("-"):
        return _missing(error, error.argument.names[0])
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return _unexpected(tuple(error.command_chain or ()), error.unused_tokens)
    return f"{str(error).rstrip('.')}; {_HELP}"


def _unknown_command(error: CycloptsError, given: str) -> str:
    command = " ".join(error.command_chain or ())
    known = [name for name in error.app or () if not name.startswith("-")]
    program = f"pylog {command}".rstrip()
    hint = did_you_mean(given, known)
    return f"unknown command {given}{hint} All: {program} --help" if hint else f"unknown command {given}; all: {program} --help"


def _missing(error: MissingArgumentError, name: str) -> str:
    command = " ".join(error.command_chain or ())
    collected = error.app.assemble_argument_collection() if error.app is not None else ()
    names = [each.names[0] for each in collected if not each.names[0].startswith("-")]
    given = [token for token in error.root_input_tokens or () if not token.startswith("-")][len(error.command_chain or ()) :]
    taken = [f"{value!r} was taken as {expected}" for value, expected in zip(given, names, strict=False)]
    hint = f" ({', '.join(taken)})" if taken else ""
    return f"{name} is missing: pylog {command} {' '.join(names)}{hint}"


def _unexpected(command: tuple[str, ...], tokens: list[str]) -> str:
    form = _FORMS.get(command)
    if form is not None and all("=" in token for token in tokens):
        return f"give options as {' '.join(f'{form} {token}' for token in tokens)}"
    return f"unexpected {', '.join(tokens)}; {_HELP}"
