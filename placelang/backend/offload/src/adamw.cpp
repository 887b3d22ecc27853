// AdamW over host memory in a single pass: gradients in fp32 or bf16, fp32 master parameters and moments, an optional
// bf16 copy of the parameters out.
//
// Separate passes to widen the gradients and to narrow the parameters would move 20 bytes an element on top of the 28
// of the update itself, and the update is bound by memory. One loop body is compiled once per instruction set and
// picked at run time. It holds only IEEE additions, multiplications, divisions and square roots, in a fixed order and
// never contracted (-ffp-contract=off), so the bits of the result depend neither on the vector width nor on where the
// range is cut.
//
// Formula: Loshchilov & Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019), Algorithm 2, with the schedule
// multiplier folded into lr; the moments are those of Kingma & Ba, "Adam" (ICLR 2015), Algorithm 1.

#include "place_offload.h"
#include "thread_pool.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>

namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kLine = 64;          // shares begin on whole cache lines of fp32 and of bf16
constexpr int64_t kGrain = 16 * 1024;  // elements below which another thread costs more than it saves

// Values of one step that are the same for all elements, rounded once from double.
struct Coefficients {
  float grad_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;                 // lr / (1 - beta1^t)
  float decay;                     // 1 - lr * weight_decay

  explicit Coefficients(const place_adamw_hyper& h)
      : grad_scale(float(h.grad_scale)),
        beta1(float(h.beta1)),
        one_minus_beta1(float(1 - h.beta1)),
        beta2(float(h.beta2)),
        one_minus_beta2(float(1 - h.beta2)),
        inverse_sqrt_correction2(float(1 / std::sqrt(1 - std::pow(h.beta2, double(h.step))))),
        eps(float(h.eps)),
        step_size(float(h.lr / (1 - std::pow(h.beta1, double(h.step))))),
        decay(float(1 - h.lr * h.weight_decay)) {}
};

template <class Gradient>
struct Buffers {
  float* params;
  float* exp_avg;
  float* exp_avg_sq;
  const Gradient* grads;
  uint16_t* params_bf16;
};

#define PLACE_INLINE inline __attribute__((always_inline))

PLACE_INLINE float to_float(float x) { return x; }

PLACE_INLINE float to_float(uint16_t bf16) {
  uint32_t bits = uint32_t(bf16) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Rounds to nearest, ties to even; every NaN becomes the quiet one, whose payload the carry could otherwise clear.
PLACE_INLINE uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

template <class Gradient, bool kCopyOut>
PLACE_INLINE void update(const Buffers<Gradient>& buffers, const Coefficients& coefficients, int64_t begin,
                         int64_t end) {
  float* __restrict params = buffers.params;
  float* __restrict exp_avg = buffers.exp_avg;
  float* __restrict exp_avg_sq = buffers.exp_avg_sq;
  const Gradient* __restrict grads = buffers.grads;
  uint16_t* __restrict params_bf16 = buffers.params_bf16;
  const Coefficients c = coefficients;
#if defined(__clang__)
#pragma clang loop vectorize(enable)
#else
#pragma GCC ivdep
#endif
  for (int64_t i = begin; i < end; ++i) {
    float g = to_float(grads[i]) * c.grad_scale;
    float m = c.beta1 * exp_avg[i] + c.one_minus_beta1 * g;
    float v = c.beta2 * exp_avg_sq[i] + c.one_minus_beta2 * g * g;
    float denominator = std::sqrt(v) * c.inverse_sqrt_correction2 + c.eps;
    float p = params[i] * c.decay - c.step_size * m / denominator;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    params[i] = p;
    if (kCopyOut) params_bf16[i] = to_bf16(p);
  }
}

template <class Gradient, bool kCopyOut>
void update_baseline(const Buffers<Gradient>& buffers, const Coefficients& c, int64_t begin, int64_t end) {
  update<Gradient, kCopyOut>(buffers, c, begin, end);
}

#if defined(__x86_64__)
#if defined(__clang__)
#define PLACE_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define PLACE_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

template <class Gradient, bool kCopyOut>
__attribute__((target("avx2"))) void update_avx2(const Buffers<Gradient>& buffers, const Coefficients& c,
                                                 int64_t begin, int64_t end) {
  update<Gradient, kCopyOut>(buffers, c, begin, end);
}

template <class Gradient, bool kCopyOut>
__attribute__((target(PLACE_AVX512))) void update_avx512(const Buffers<Gradient>& buffers, const Coefficients& c,
                                                         int64_t begin, int64_t end) {
  update<Gradient, kCopyOut>(buffers, c, begin, end);
}
#endif

int best_isa() {
#if defined(__x86_64__)
  static const int best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                              ? PLACE_ISA_AVX512
                          : __builtin_cpu_supports("avx2") ? PLACE_ISA_AVX2
                                                           : PLACE_ISA_BASELINE;
  return best;
#else
  return PLACE_ISA_BASELINE;
#endif
}

// The default floating point environment for a scope: a caller or a worker that flushes denormals to zero, or rounds
// otherwise than to nearest, would else change the bits of its share.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

template <class Gradient>
using Update = void (*)(const Buffers<Gradient>&, const Coefficients&, int64_t, int64_t);

template <class Gradient, bool kCopyOut>
Update<Gradient> update_for(int isa) {
#if defined(__x86_64__)
  if (isa == PLACE_ISA_AVX512) return update_avx512<Gradient, kCopyOut>;
  if (isa == PLACE_ISA_AVX2) return update_avx2<Gradient, kCopyOut>;
#endif
  (void)isa;
  return update_baseline<Gradient, kCopyOut>;
}

template <class Gradient>
struct Sweep {
  Update<Gradient> update;
  Buffers<Gradient> buffers;
  Coefficients coefficients;
  int64_t size, share_size;

  static void work_on(void* context, int share) {
    const Sweep& self = *static_cast<const Sweep*>(context);
    int64_t begin = std::min(self.size, share * self.share_size);
    DefaultFloatingPoint scope;
    self.update(self.buffers, self.coefficients, begin, std::min(self.size, begin + self.share_size));
  }
};

template <class Gradient>
void sweep(const Buffers<Gradient>& buffers, const Coefficients& coefficients, int64_t size, int threads, int isa) {
  int64_t shares = std::max<int64_t>(1, std::min<int64_t>(threads, size / kGrain));
  int64_t share_size = (size / shares / kLine + 1) * kLine;  // > size / shares, so the shares cover the range
  Update<Gradient> chosen = buffers.params_bf16 ? update_for<Gradient, true>(isa) : update_for<Gradient, false>(isa);
  Sweep<Gradient> context{chosen, buffers, coefficients, size, share_size};
  place::parallel(int(shares), Sweep<Gradient>::work_on, &context);
}

bool in_unit_interval(double beta) { return beta >= 0 && beta < 1; }                // false for NaN
bool finite_and_not_negative(double x) { return x >= 0 && std::isfinite(x); }

bool valid(const place_adamw_hyper& h) {
  return finite_and_not_negative(h.lr) && in_unit_interval(h.beta1) && in_unit_interval(h.beta2) &&
         finite_and_not_negative(h.eps) && finite_and_not_negative(h.weight_decay) && std::isfinite(h.grad_scale) &&
         h.step >= 1;
}

struct Range {
  uintptr_t begin, end;
  Range(const void* pointer, int64_t size, int64_t element)
      : begin(reinterpret_cast<uintptr_t>(pointer)), end(pointer ? begin + uintptr_t(size * element) : begin) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

}  // namespace

extern "C" {

int32_t place_offload_abi(void) { return PLACE_OFFLOAD_ABI; }

int32_t place_offload_isa(void) { return best_isa(); }

int32_t place_offload_threads(void) { return std::min(kMaxThreads, place::default_threads()); }

int32_t place_adamw(const place_adamw_hyper* hyper, float* params, float* exp_avg, float* exp_avg_sq,
                    const void* grads, int32_t grads_dtype, uint16_t* params_bf16, int64_t size, int32_t threads,
                    int32_t isa) {
  if (hyper == nullptr) return PLACE_NULL_POINTER;
  if (!valid(*hyper)) return PLACE_BAD_HYPER;
  if (size < 0 || size > INT64_MAX / int64_t(sizeof(float)) / 2) return PLACE_BAD_SIZE;
  if (grads_dtype != PLACE_FLOAT32 && grads_dtype != PLACE_BFLOAT16) return PLACE_BAD_DTYPE;
  if (isa < PLACE_ISA_BEST || isa > best_isa()) return PLACE_BAD_ISA;
  if (threads < 0 || threads > kMaxThreads) return PLACE_BAD_THREADS;
  if (size == 0) return PLACE_OK;
  if (!params || !exp_avg || !exp_avg_sq || !grads) return PLACE_NULL_POINTER;

  const int64_t grad_bytes = grads_dtype == PLACE_FLOAT32 ? 4 : 2;
  const Range written[] = {{params, size, 4}, {exp_avg, size, 4}, {exp_avg_sq, size, 4}, {params_bf16, size, 2}};
  const Range read(grads, size, grad_bytes);
  const uintptr_t odd = ((written[0].begin | written[1].begin | written[2].begin) & 3) | (written[3].begin & 1) |
                        (read.begin & uintptr_t(grad_bytes - 1));
  if (odd) return PLACE_MISALIGNED;
  for (int i = 0; i < 4; ++i) {
    if (written[i].meets(read)) return PLACE_OVERLAP;
    for (int j = i + 1; j < 4; ++j) {
      if (written[i].meets(written[j])) return PLACE_OVERLAP;
    }
  }

  const Coefficients coefficients(*hyper);
  if (isa == PLACE_ISA_BEST) isa = best_isa();
  if (threads == 0) threads = place_offload_threads();
  if (grads_dtype == PLACE_FLOAT32) {
    sweep<float>({params, exp_avg, exp_avg_sq, static_cast<const float*>(grads), params_bf16}, coefficients, size,
                 threads, isa);
  } else {
    sweep<uint16_t>({params, exp_avg, exp_avg_sq, static_cast<const uint16_t*>(grads), params_bf16}, coefficients,
                    size, threads, isa);
  }
  return PLACE_OK;
}

}  // extern "C"
