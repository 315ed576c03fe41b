"""`python -m archloom` is the command `archloom`."""

from archloom.cli.start import run

if __name__ == "__main__":
    run()
