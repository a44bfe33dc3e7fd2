/* Attention: softmax(q @ k.T * scale + mask) @ v, a block of queries at a time, all keys at once.

   The queries of a block lie across the lanes of two vectors. So what the scores of a query come down
   to, their maximum and their sum, is computed lane by lane: nothing is summed across a vector, and
   the scores are multiplied with the values as they lie. */

#pragma GCC optimize ("fp-contract=fast") /* kernels are compiled without */

/* helpers: tc_exp_f32, tc_transpose_16 */

typedef long long whole;
typedef float lanes __attribute__((vector_size(64)));
typedef float loose __attribute__((vector_size(64), aligned(4)));
typedef int places __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))
#define PART static __attribute__((noinline)) /* gcc takes long over large functions */
/* limits */
#define WIDE 2       /* vectors of queries: what is read of a key serves both */
#define BLOCK 32     /* queries */
#define KEYS 12      /* whose scores are computed at once: 24 sums, in registers */
#define VALUES 128   /* keys whose values stay in the first cache */
#define WORTH 262144 /* multiplications from which threads share the blocks */

void* aligned_alloc(unsigned long alignment, unsigned long bytes);
void free(void* memory);

typedef struct {
  const float *q, *k, *v, *mask;
  float *out, *lse;
  whole q_step, k_step, v_step, mask_step, out_step, lse_step;
  whole rows, keys, depth, first; /* first: the block's first query */
  int causal, masked, with_sums;
  float scale;
} Part;

INLINE lanes larger(lanes a, lanes b) {
  const places taken = a > b | (a != a);
  return (lanes)(((places)a & taken) | ((places)b & ~taken));
}

/* to[c][r] = from[r][c] * scale for 16 rows and columns */
PART void transpose(const float* from, whole step, float* to, whole to_step, float scale) {
  places a[16];
  for (int r = 0; r < 16; r++) a[r] = (places)(*(const loose*)(from + r * step) * scale);
  tc_transpose_16(a);
  for (int r = 0; r < 16; r++) *(lanes*)(to + r * to_step) = (lanes)a[r];
}

/* scores[n][r] = sum over d of k[n][d] * q[d][r] */
INLINE void score_tile(
    const float* k, whole step, const float* q, whole depth, float* scores, const int keys) {
  lanes sums[KEYS][WIDE];
  for (int n = 0; n < keys; n++) sums[n][0] = sums[n][1] = (lanes){0};
  for (whole d = 0; d < depth; d++) {
    const lanes* query = (const lanes*)(q + d * BLOCK);
    for (int n = 0; n < keys; n++) {
      const float key = k[n * step + d];
      sums[n][0] += key * query[0];
      sums[n][1] += key * query[1];
    }
  }
  for (int n = 0; n < keys; n++) {
    *(lanes*)(scores + n * BLOCK) = sums[n][0];
    *(lanes*)(scores + n * BLOCK + LANES) = sums[n][1];
  }
}

/* out[r][c] += sum over n of p[n][r] * v[n][c] */
INLINE void value_tile(
    const float* p, const float* v, whole step, whole keys, float* out, whole out_step,
    const int rows, const int columns) {
  lanes sums[16];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++)
      sums[r * columns + c] = *(const lanes*)(out + r * out_step + c * LANES);
  for (whole n = 0; n < keys; n++) {
    lanes value[4];
    for (int c = 0; c < columns; c++) value[c] = *(const loose*)(v + n * step + c * LANES);
    for (int r = 0; r < rows; r++) {
      const float weight = p[n * BLOCK + r];
      for (int c = 0; c < columns; c++) sums[r * columns + c] += weight * value[c];
    }
  }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++)
      *(lanes*)(out + r * out_step + c * LANES) = sums[r * columns + c];
}

PART void find_scores(const Part* of, float* scores, whole keys) {
  float transposed[DEPTH * BLOCK] __attribute__((aligned(64)));
  if (of->rows == BLOCK) {
    for (whole d = 0; d < of->depth; d += 16)
      for (whole r = 0; r < BLOCK; r += 16)
        transpose(of->q + r * of->q_step + d, of->q_step, transposed + d * BLOCK + r, BLOCK, of->scale);
  } else {
    __builtin_memset(transposed, 0, sizeof(float) * BLOCK * of->depth);
    for (whole r = 0; r < of->rows; r++)
      for (whole d = 0; d < of->depth; d++)
        transposed[d * BLOCK + r] = of->q[r * of->q_step + d] * of->scale;
  }
  whole n = 0;
#define TILE(count) \
  for (; n + count <= keys; n += count) \
    score_tile(of->k + n * of->k_step, of->k_step, transposed, of->depth, scores + n * BLOCK, count)
  TILE(KEYS);
  TILE(4);
  TILE(1);
}

PART void add_mask(const Part* of, float* scores, whole keys) {
  whole n = 0;
  if (of->rows == BLOCK && of->mask_step)
    for (; n + 16 <= keys; n += 16)
      for (whole r = 0; r < BLOCK; r += 16) {
        float part[16 * LANES] __attribute__((aligned(64)));
        transpose(of->mask + r * of->mask_step + n, of->mask_step, part, LANES, 1);
        for (int k = 0; k < 16; k++)
          *(lanes*)(scores + (n + k) * BLOCK + r) += *(const lanes*)(part + k * LANES);
      }
  for (; n < keys; n++)
    for (whole r = 0; r < of->rows; r++)
      scores[n * BLOCK + r] += of->mask[r * of->mask_step + n];
}

PART void hide_later_keys(const Part* of, float* scores, whole keys) {
  for (whole n = of->first; n < keys; n++) {
    const int seen_from = (int)(n - of->first);
    #pragma omp simd
    for (int r = 0; r < BLOCK; r++)
      scores[n * BLOCK + r] = r < seen_from ? -__builtin_inff() : scores[n * BLOCK + r];
  }
}

/* Scores become weights, not yet divided by their total. */
PART void find_weights(float* scores, whole keys, lanes* most, lanes* total) {
  float base[4 * BLOCK] __attribute__((aligned(64)));
  for (int w = 0; w < WIDE; w++) {
    lanes top = (lanes){0} - __builtin_inff();
    for (whole n = 0; n < keys; n++)
      top = larger(*(const lanes*)(scores + n * BLOCK + w * LANES), top);
    most[w] = top;
    /* where all keys are hidden, no weight is NaN */
    const lanes taken = (lanes)((places)top & (top > -__builtin_inff() | top != top));
    for (int k = 0; k < 4; k++) *(lanes*)(base + k * BLOCK + w * LANES) = taken;
  }
  lanes one = {0}, other = {0};
  whole n = 0;
#define WEIGH(count) \
  for (; n + count <= keys; n += count) { \
    float* some = scores + n * BLOCK; \
    _Pragma("omp simd") \
    for (int i = 0; i < count * BLOCK; i++) some[i] = tc_exp_f32(some[i] - base[i]); \
    for (int k = 0; k < count; k++) { \
      one += *(const lanes*)(some + k * BLOCK); \
      other += *(const lanes*)(some + k * BLOCK + LANES); \
    } \
  }
  WEIGH(4)
  WEIGH(1)
  total[0] = one;
  total[1] = other;
}

PART void add_values(const Part* of, const float* weights, whole keys, float* sums) {
  __builtin_memset(sums, 0, sizeof(float) * BLOCK * of->depth);
  for (whole n = 0; n < keys; n += VALUES) {
    const whole some = keys - n < VALUES ? keys - n : VALUES;
    whole c = 0;
#define COLUMNS(count, tall) \
    for (; c + count * LANES <= of->depth; c += count * LANES) \
      for (whole r = 0; r < of->rows; r += tall) \
        value_tile(weights + n * BLOCK + r, of->v + n * of->v_step + c, of->v_step, some, \
                   sums + r * of->depth + c, of->depth, tall, count)
    COLUMNS(4, 4);
    COLUMNS(2, 8);
    COLUMNS(1, 16);
  }
}

static void attend_to(const Part* of, float* scores) {
  float sums[BLOCK * DEPTH] __attribute__((aligned(64)));
  lanes most[WIDE], total[WIDE];
  const whole depth = of->depth, seen = of->first + of->rows;
  const whole keys = of->causal && seen < of->keys ? seen : of->keys;
  find_scores(of, scores, keys);
  if (of->masked) add_mask(of, scores, keys);
  if (of->causal) hide_later_keys(of, scores, keys);
  find_weights(scores, keys, most, total);
  add_values(of, scores, keys, sums);
  for (whole r = 0; r < of->rows; r++) {
    /* as ATen: a query that sees no key gets zeros, and a logarithm of 0 */
    const float top = most[r / LANES][r % LANES], sum = total[r / LANES][r % LANES];
    const float part = sum == 0 ? 1 : 1 / sum;
    for (whole d = 0; d < depth; d++) of->out[r * of->out_step + d] = sums[r * depth + d] * part;
    if (of->with_sums) of->lse[r * of->lse_step] = sum == 0 ? 0 : top + __builtin_logf(sum);
  }
}

/* Strides are of batches, heads and rows, in elements; those of lse, of rows, is `heads`. */
whole attend_f32(
    const float* q, const float* k, const float* v, const float* mask, float* out, float* lse,
    whole batch, whole heads, whole group, whole queries, whole keys, whole depth,
    whole qb, whole qh, whole qn, whole kb, whole kh, whole kn, whole vb, whole vh, whole vn,
    whole mb, whole mh, whole mn, whole ob, whole oh, whole on,
    whole causal, whole masked, whole with_sums, whole threads, double scale) {
  const whole blocks = (queries + BLOCK - 1) / BLOCK, all = batch * heads * blocks;
  const int shared = threads > 1 && all * BLOCK * keys * depth >= WORTH;
  whole failed = 0;
  #pragma omp parallel num_threads(threads) if(shared) reduction(| : failed)
  {
    float* scores = aligned_alloc(64, sizeof(float) * BLOCK * keys);
    failed |= scores == 0;
    #pragma omp for schedule(dynamic)
    for (whole i = 0; i < all; i++) {
      const whole b = i / (heads * blocks), h = i / blocks % heads, first = i % blocks * BLOCK;
      const whole rows = queries - first < BLOCK ? queries - first : BLOCK;
      const Part part = {
          q + b * qb + h * qh + first * qn, k + b * kb + h / group * kh, v + b * vb + h / group * vh,
          mask + b * mb + h * mh + first * mn, out + b * ob + h * oh + first * on,
          lse + (b * queries + first) * heads + h, qn, kn, vn, mn, on, heads, rows, keys, depth,
          first, causal != 0, masked != 0, with_sums != 0, (float)scale};
      if (scores != 0)
        attend_to(&part, scores);
    }
    free(scores);
  }
  return failed;
}
