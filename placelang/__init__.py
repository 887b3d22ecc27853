"""placelang: a small language for placing the training of large models on many devices."""

__version__ = "0.1.0"
