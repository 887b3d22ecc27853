"""The step program: the finite list of events of one training step that a Plan denotes for a model.

`event` holds the one record type, `program` the whole with its loops, `profile` the runtime choices that change cost
and never the result, `lower` makes a program from a Plan. Everything right of this room interprets a program.
"""
