"""Optimizer work on host memory: the native kernels and their torch equivalents.

Not for moving state between devices and host, nor for deciding what rests where: that is the plan's.
"""
