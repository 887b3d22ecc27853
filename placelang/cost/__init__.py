"""Cost room: what a step program needs in memory, traffic and time, as formula and as number."""
