/* Rows sorted in order of their keys; equal ones stay as they were.

   A word holds an element's key, above, and its place in the row, below. No two words are equal, so
   any way to sort them keeps the order of equal keys. Keys are unsigned and of 32 bits: -0.0 and 0.0
   have one key, all NaNs have the greatest. Values come from the source by place. */

typedef unsigned long long word;
typedef unsigned int key;
typedef long long whole;

#define SHORT 80 /* elements up to which counting smaller ones was measured to be faster */
#define LANES 8
#define DIGITS 4
#define BUCKETS 256
#define PARALLEL 8192 /* elements from which threads share the rows */
#define INLINE static inline __attribute__((always_inline))

INLINE key key_f32(float x) {
  union { float value; key bits; } u = {x == 0 ? 0.0f : x};
  const key ordered = u.bits ^ (u.bits >> 31 ? ~0u : 1u << 31);
  return x != x ? ~0u : ordered;
}

INLINE key key_bf16(unsigned short x) {
  union { key bits; float value; } u = {(key)x << 16};
  return key_f32(u.value);
}

INLINE key key_f16(unsigned short x) {
  const key size = x & 0x7fff;
  const key ordered = x >> 15 ? 0x8000 - size : 0x8000 + size;
  return size > 0x7c00 ? ~0u : ordered << 15;
}

INLINE key key_i32(int x) { return (key)x ^ 1u << 31; }

/* Each word goes to where as many others are smaller. Behind the last there is space for LANES, so
   that vectors need no rest; the ranks found there are nobody's. */
static word* by_rank(word* restrict from, word* restrict to, whole n) {
  word rank[SHORT + LANES];
  const whole padded = (n + LANES - 1) / LANES * LANES;
  for (whole i = 0; i < padded; i++) rank[i] = 0;
  for (whole j = 0; j < n; j++) {
    const word other = from[j];
    #pragma omp simd
    for (whole i = 0; i < padded; i++) rank[i] += from[i] > other;
  }
  for (whole i = 0; i < n; i++) to[rank[i]] = from[i];
  return to;
}

/* Words go into buckets by one digit of the key after the other, the lowest first. */
static word* by_digits(word* restrict from, word* restrict to, whole n) {
  key counts[DIGITS][BUCKETS];
  __builtin_memset(counts, 0, sizeof counts);
  for (whole i = 0; i < n; i++) {
    const key k = from[i] >> 32;
    for (int d = 0; d < DIGITS; d++) counts[d][k >> 8 * d & (BUCKETS - 1)]++;
  }
  for (int d = 0; d < DIGITS; d++) {
    key* count = counts[d];
    const int shift = 32 + 8 * d;
    if (count[from[0] >> shift & (BUCKETS - 1)] == n) continue; /* all have the same digit */
    key start = 0;
    for (int b = 0; b < BUCKETS; b++) {
      const key size = count[b];
      count[b] = start;
      start += size;
    }
    for (whole i = 0; i < n; i++) to[count[from[i] >> shift & (BUCKETS - 1)]++] = from[i];
    word* other = from;
    from = to;
    to = other;
  }
  return from;
}

/* Rows first .. last - 1 of n elements each. Unless stable, tied marks those that hold equal elements.
   Returns 1 if there is no memory for the words. */
#define SORT(name, type, key_of)                                                                \
  whole name(const type* restrict source, type* restrict values, whole* restrict places,        \
             unsigned char* restrict tied, whole first, whole last, whole n, whole descending,  \
             whole stable, whole threads) {                                                     \
    const key flip = descending ? ~0u : 0;                                                      \
    whole fault = 0;                                                                            \
    _Pragma("omp parallel num_threads(threads) if((last - first) * n >= PARALLEL) reduction(|:fault)") \
    {                                                                                           \
      word* words = __builtin_malloc(2 * (n + LANES) * sizeof(word));                           \
      fault |= !words;                                                                          \
      _Pragma("omp for schedule(static)")                                                       \
      for (whole row = first; row < last; row++) {                                              \
        if (!words) continue;                                                                   \
        const type* x = source + row * n;                                                       \
        _Pragma("omp simd")                                                                     \
        for (whole j = 0; j < n; j++) words[j] = (word)(key_of(x[j]) ^ flip) << 32 | (word)j;   \
        word* spare = words + n + LANES;                                                        \
        const word* sorted = n <= SHORT ? by_rank(words, spare, n) : by_digits(words, spare, n); \
        _Pragma("omp simd")                                                                     \
        for (whole j = 0; j < n; j++) {                                                         \
          const whole place = (key)sorted[j];                                                   \
          places[row * n + j] = place;                                                          \
          values[row * n + j] = x[place];                                                       \
        }                                                                                       \
        if (stable) continue;                                                                   \
        unsigned char equal = 0;                                                                \
        _Pragma("omp simd reduction(|:equal)")                                                  \
        for (whole j = 1; j < n; j++) equal |= sorted[j] >> 32 == sorted[j - 1] >> 32;          \
        tied[row] = equal;                                                                      \
      }                                                                                         \
      __builtin_free(words);                                                                    \
    }                                                                                           \
    return fault;                                                                               \
  }

SORT(sort_f32, float, key_f32)
SORT(sort_bf16, unsigned short, key_bf16)
SORT(sort_f16, unsigned short, key_f16)
SORT(sort_i32, int, key_i32)
