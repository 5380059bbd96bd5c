"""Words from files as they may be shown: on one line, printable, no longer than there is room."""

from hashlib import sha256

MOST = 300  # characters, unless a place has less room
MESSAGE = 2000  # characters of what a verb prints when it ends, names of files and all
LONGEST_PATH = 4096
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def one_line(words: object, most: int = MOST) -> str:
    """`words` with single spaces between them and nothing in them that a terminal would obey.

    What is too long is cut and ends in a mark that is its own, so that two long words which differ
    stay apart.
    """
    whole = str(words)
    told = " ".join(whole[: 4 * most].split())
    told = "".join(letter if letter.isprintable() else UNKNOWN for letter in told)
    if len(told) <= most and len(whole) <= 4 * most:
        return told
    mark = sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{told[: most - 7]}…{mark}"


def duration(seconds: float) -> str:
    """A length of time in the largest unit that suits it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 1e10 else f"{seconds / 3600:.0e} h"
