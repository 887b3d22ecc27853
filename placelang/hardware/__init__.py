"""What a machine is: devices, the links between them, networks between nodes, hosts.

`hardware` holds the values, `constructors` the functions that a text may call (`gpu`, `node`, `nvlink`, ...), `values`
reads expressions, `catalogue` the published machines of `stdlib/hardware`. All figures are nominal and exact, in bytes,
bytes/s, flop/s and seconds; an unknown one is None. Not for: how much of a figure a kernel or a collective reaches, or
how long anything takes (`cost`).
"""
