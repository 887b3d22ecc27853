"""Benchmarks. Each runs as ``python -m benchmarks.NAME [--json FILE]`` and prints a table of what it measured."""
