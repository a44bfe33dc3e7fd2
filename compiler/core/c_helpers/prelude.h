/* What all helpers and kernels are compiled under. */

#pragma once /* for editors, and not pasted */

/* helper: tc_prelude
   gcc would turn chains of clamps into chains of masks, at twice the price, and branches between
   two functions into jumps, which no vector takes. Without these passes gcc 12 unswitches a loop in a
   parallel region wrongly: a bidirectional RNN had the gradients of its two ends mixed up. What one
   arm of a choice alone needs would be sunk into a branch, and a call there has no vector form.
   Out of a reduction that copies one value and chooses another from memory, gcc 12 takes the copy,
   and loses the stores of the rest: a softmax of joined tensors read memory that nothing had written. */
#pragma GCC optimize ("no-thread-jumps", "no-tree-dominator-opts", "no-tree-pre")
#pragma GCC optimize ("no-unswitch-loops", "no-tree-sink")
#pragma GCC optimize ("no-tree-loop-distribution", "no-tree-loop-distribute-patterns")

/* helper: tc_wrapping
   Integers wrap around as in eager: a comparison may not take it that sums do not. It stands only
   before kernels that compute integers, as gcc then knows less about indices. */
#pragma GCC optimize ("wrapv")

/* helper: tc_macros
   with: tc_fma_f32, tc_fma_f64
   TC_LANES is for functions that no vector form computes: gcc makes vector forms that call them for
   each element, so that they do not keep the rest of a loop from vectors. */
#ifdef __FMA__
#define tc_fma_f32 __builtin_fmaf
#define tc_fma_f64 __builtin_fma
#else
#define tc_fma_f32(a, b, c) ((a) * (b) + (c))
#define tc_fma_f64(a, b, c) ((a) * (b) + (c))
#endif
#define TC_INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && !defined(__clang__)
#define TC_LANES static __attribute__((noinline, const, simd("notinbranch")))
#else
#define TC_LANES TC_INLINE
#endif
