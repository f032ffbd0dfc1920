"""`python -m sandyard` is the console script."""

from sandyard.entrypoints.cli import main

if __name__ == "__main__":
    main()
