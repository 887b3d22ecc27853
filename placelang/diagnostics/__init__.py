"""Structured messages to users: what is wrong, where, why, by which rule, and what to write instead.

`diagnostic` holds the value, `codes` the registry and its explain pages, `render` turns values into text or JSON.
Not for: deciding what is wrong; the rooms that find a fault make the value.
"""
