"""Verbs of the command line that need a file of their own; ``cli`` has the rest and the parser."""
