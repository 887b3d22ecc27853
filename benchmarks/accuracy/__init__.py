"""How near the time that placelang says comes to times that others measured."""
