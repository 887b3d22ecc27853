// Threads for loops over host memory. Not a scheduler: one loop at a time, cut into equal shares by the caller.
#pragma once

namespace place {

// Processors that the calling thread may run on, at most OMP_NUM_THREADS if that names a positive number.
int default_threads();

// Calls `task(context, share)` once for every share in [0, shares), on the calling thread and on up to `shares - 1`
// workers, and returns when all are done. The workers live on between calls, with the processor affinity that the
// caller had. Where the system grants fewer threads the shares are worked off by those there are. `task` must not throw.
void parallel(int shares, void (*task)(void* context, int share), void* context) noexcept;

}  // namespace place
