"""`pylog --install-completion`: installs shell completion of commands, options and choices."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from pylog.cli.app import PROGRAM, Json, app, command
from pylog.cli.exits import CommandFailed, UsageError
from pylog.cli.output import print_json, print_line


@command(PROGRAM, name="--install-completion")
def install_completion(
    *,
    shell: Literal["bash", "zsh", "fish", "powershell"] | None = None,
    startup: Annotated[bool, Parameter(negative="--no-startup", show_default=False)] = True,
    json: Json = False,
) -> None:
    """Installs shell completion: writes a script, and a line that loads it into the shell's startup file.

    Args:
        shell: Name of the shell. Default: the shell that runs this command.
        startup: Add the line to the startup file. Ignored for fish, which finds the script without it.
        json: Print one JSON document.

    Examples:
        pylog --install-completion
        pylog --install-completion --shell zsh --no-startup
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        chosen = shell or detect_shell()
        path = app.install_completion(shell=chosen, add_to_startup=startup)
    except ShellDetectionError as error:
        raise UsageError("cannot detect the shell; give --shell bash, --shell zsh or --shell fish") from error
    except OSError as error:
        raise CommandFailed(f"cannot install the completion script: {error}") from error
    if json:
        print_json({"shell": chosen, "path": str(path)})
    else:
        print_line(f"Wrote {path}. Start a new {chosen} to use it.")
