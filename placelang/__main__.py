"""`python -m placelang` is the command `place`."""

from placelang.tools.cli import main

if __name__ == "__main__":
    main()
