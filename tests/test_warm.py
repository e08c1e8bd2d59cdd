"""`support.warm`: forks of one interpreter behave as new interpreters do, in what the tests ask of them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import pylog
from support import warm


def test_a_program_has_its_arguments_directory_environment_and_output(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv, os.getcwd(), os.environ['GIVEN']); sys.exit('wrong')"
    done = warm.run(["-c", program, "a", tmp_path], cwd=tmp_path, env={**os.environ, "GIVEN": "yes"})
    assert done.stdout == f"['-c', 'a', '{tmp_path}'] {tmp_path} yes\n"
    assert (done.stderr, done.returncode) == ("wrong\n", 1)


def test_a_program_is_a_process_of_its_own_whose_locks_and_kill_are_its_own(tmp_path: Path) -> None:
    program = "import os, sys, pylog; pylog.open(sys.argv[1], exclusive=True); os.kill(os.getpid(), 9)"
    assert warm.run(["-c", program, tmp_path]).returncode == -signal.SIGKILL
    with pylog.open(tmp_path, exclusive=True):
        assert "StoreLockedError" in warm.run(["-c", program, tmp_path]).stderr


def test_what_a_program_leaves_to_the_end_of_the_interpreter_is_done_and_the_next_one_sees_nothing_of_it() -> None:
    program = "import atexit, builtins; builtins.left = 1; atexit.register(print, 'end')"
    assert warm.run(["-c", program]).stdout == "end\n"
    assert warm.run(["-c", "import builtins; print(hasattr(builtins, 'left'))"]).stdout == "False\n"


def test_warnings_are_errors_where_that_is_asked_for_but_for_those_that_are_named() -> None:
    program = "import warnings; warnings.warn('one thing', DeprecationWarning); warnings.warn('another', DeprecationWarning)"
    done = warm.run(["-W", "error", "-W", "ignore:one:DeprecationWarning", "-c", program])
    assert done.stderr.endswith("DeprecationWarning: another\n")


def test_a_module_and_a_file_run_as_the_main_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nif __name__ == '__main__': print(sys.argv[1:])\n")
    for how in (["-m", "program"], [tmp_path / "program.py"]):
        assert warm.run([*how, "x"], cwd=tmp_path, check=True).stdout == "['x']\n"


def test_a_program_that_takes_too_long_is_killed_and_the_next_one_runs() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(["-c", "import signal; signal.pause()"], timeout=0.2)
    assert warm.run(["-c", "print('next')"]).stdout == "next\n"
