"""The tools one lives in: command line, REPL, doctor, demo. Thin: nothing here that a library user cannot call.

`cli` declares the commands and `screen` says what a terminal can show; each command has a module of its own, imported
only when it runs. Not for: verdicts, numbers or wording of errors, which come from the rooms.
"""
