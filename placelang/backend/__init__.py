"""Running: an `nn.Module` is placed as a step program says, trained, and compared with what was predicted.

The one room that imports torch, and only inside its modules: importing this package does not.

`apply` places a module, `parallel` is what a user's own loop then holds, `run` is a ready loop and `verify` compares
one with its prediction; `build` makes a module of a catalogue model and `read` a model of any module; `launch` starts
the processes. Not for: deciding whether a strategy is sound (`check`) or what it costs (`cost`).
"""
