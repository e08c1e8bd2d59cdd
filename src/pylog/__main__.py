"""`python -m pylog`: the command line."""

from pylog.cli import main

if __name__ == "__main__":
    main()
