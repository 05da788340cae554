"""`python -m backtalk` is the command `backtalk`."""

from backtalk.cli import main

if __name__ == "__main__":
    main()
