"""The command line: a file for each verb, one parser and one place where errors become lines.

Nothing imports from here.
"""
