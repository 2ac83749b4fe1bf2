"""``python -m securedfl`` is the command ``securedfl``."""

from securedfl.cli import main

if __name__ == "__main__":
    main()
