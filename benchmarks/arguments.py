"""What the studies' command lines take."""

import argparse


def positive(text: str) -> int:
    """Return a whole number above 0; argparse names the option beside what is wrong.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number
