"""`python -m archloom` is the command `archloom`."""

from archloom.cli.main import run

if __name__ == "__main__":
    run()
