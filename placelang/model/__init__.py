"""What a model is: stacks of equal layers, their tensors with named dims, and what backward keeps of each.

`model` holds the values, `layers` the parts that a layer is made of, `constructors` the functions that a text may call
(`transformer`, `encoder`, ...), `catalogue` the published shapes of `stdlib/models`, `huggingface` reads `config.json`.
Pure and light: no torch here. Not for: placing a model (`plan`) or reading an `nn.Module` (`backend`).
"""
