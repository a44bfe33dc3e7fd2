/* What all helpers and kernels are compiled under. */

#pragma once /* for editors, and not pasted */

/* helper: tc_prelude
   gcc would turn chains of clamps into chains of masks, at twice the price, and branches between
   two functions into jumps, which no vector takes. */
#pragma GCC optimize ("no-thread-jumps", "no-tree-dominator-opts", "no-tree-pre")

/* helper: tc_macros
   with: tc_fma_f32, tc_fma_f64 */
#ifdef __FMA__
#define tc_fma_f32 __builtin_fmaf
#define tc_fma_f64 __builtin_fma
#else
#define tc_fma_f32(a, b, c) ((a) * (b) + (c))
#define tc_fma_f64(a, b, c) ((a) * (b) + (c))
#endif
#define TC_INLINE static inline __attribute__((always_inline))
