"""``python -m gateway.cli``: the command ``holeshot`` if the script is not on the path."""

from gateway.cli.main import main

if __name__ == "__main__":
    main()
