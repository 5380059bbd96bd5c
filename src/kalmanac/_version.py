"""The version, in a file of its own: nothing inside comes in by the front door."""

__version__ = "0.2.0"
