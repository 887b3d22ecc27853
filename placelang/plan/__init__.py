"""From names to meaning: meshes, facts, journeys and the elaboration rules turn an AST into a Plan.

A Plan is typed, complete and immutable. Not for: events (`program`) or verdicts (`check`).
"""
