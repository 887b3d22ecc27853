// The C interface of the offload kernels: what `kernel.py` binds with ctypes.
//
// Neither torch nor Python is included or linked, so that one library serves every version of both. Functions never
// throw, never keep a pointer after they return, and may be called from several threads (calls then take turns) and
// after fork().
#ifndef PLACE_OFFLOAD_H
#define PLACE_OFFLOAD_H

#include <stdint.h>

#define PLACE_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change of this interface; the Python side refuses a library of another number.
enum { PLACE_OFFLOAD_ABI = 1 };

enum place_status {
  PLACE_OK = 0,
  PLACE_NULL_POINTER = 1,     // a required pointer is null while size > 0
  PLACE_BAD_SIZE = 2,         // size < 0
  PLACE_BAD_HYPER = 3,        // a hyperparameter is out of its range or not finite
  PLACE_BAD_DTYPE = 4,        // grads_dtype is none of place_dtype
  PLACE_BAD_ISA = 5,          // the instruction set is unknown or this processor lacks it
  PLACE_BAD_THREADS = 6,      // threads < 0 or > 1024
  PLACE_MISALIGNED = 7,       // a pointer is not aligned to its element
  PLACE_OVERLAP = 8,          // a written buffer shares memory with another buffer
};

enum place_dtype { PLACE_FLOAT32 = 0, PLACE_BFLOAT16 = 1 };

enum place_isa { PLACE_ISA_BEST = -1, PLACE_ISA_BASELINE = 0, PLACE_ISA_AVX2 = 1, PLACE_ISA_AVX512 = 2 };

struct place_adamw_hyper {
  double lr;            // >= 0
  double beta1, beta2;  // in [0, 1)
  double eps;           // >= 0
  double weight_decay;  // >= 0, decoupled
  double grad_scale;    // finite; every gradient is multiplied by it first (inverse loss scale times clip factor)
  int64_t step;         // >= 1, the number of this step
};

// PLACE_OFFLOAD_ABI of the library.
PLACE_EXPORT int32_t place_offload_abi(void);

// The widest place_isa that this processor runs.
PLACE_EXPORT int32_t place_offload_isa(void);

// Threads used for `threads = 0`: the processors this thread may run on, at most OMP_NUM_THREADS if that is set.
PLACE_EXPORT int32_t place_offload_threads(void);

// One AdamW step over `size` elements in a single pass over memory. Updates the fp32 `params`, `exp_avg` and
// `exp_avg_sq` in place; writes `params_bf16` (rounded to nearest, ties to even) unless it is null. The result has the
// same bits for every `isa` and every `threads`. Returns a place_status; nothing was written unless it is PLACE_OK.
PLACE_EXPORT int32_t place_adamw(const struct place_adamw_hyper* hyper, float* params, float* exp_avg,
                                 float* exp_avg_sq, const void* grads, int32_t grads_dtype, uint16_t* params_bf16,
                                 int64_t size, int32_t threads, int32_t isa);

#ifdef __cplusplus
}
#endif

#endif
