"""C helpers that move memory or bits: tiles turned in registers, lines written past the caches.

`math` takes them in among the helpers that kernels may call.
"""

MOVES = {
    "tc_stream": """\
void tc_stream(void* to, const void* from, long long bytes) {
  /* whole lines, past the caches */
#if defined(__AVX512F__) && !defined(__clang__)
  typedef long long line __attribute__((vector_size(64)));
  line* into = (line*)to;
  const line* out_of = (const line*)from;
  if (((unsigned long long)to & 63) == 0) {
    for (; bytes >= 64; bytes -= 64) __builtin_ia32_movntdq512(into++, *out_of++);
    to = into;
    from = out_of;
  }
#endif
  __builtin_memcpy(to, from, bytes);
}""",
    "tc_stream_end": """\
void tc_stream_end(void) {
  /* other threads see what was streamed; those of a parallel loop meet at a locked instruction */
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}""",
    "tc_turn_16": """\
void tc_turn_16(const int* from, long long step, int* to) {
  /* A 16 x 16 tile turned: four rounds, each interleaving rows k and k + 8. */
  typedef int row __attribute__((vector_size(64)));
  const row low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const row high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  row a[16], b[16];
  for (int k = 0; k < 16; k++) __builtin_memcpy(&a[k], from + k * step, 64);
  for (int round = 0; round < 2; round++) {
    for (int k = 0; k < 8; k++) {
      b[2 * k] = __builtin_shuffle(a[k], a[k + 8], low);
      b[2 * k + 1] = __builtin_shuffle(a[k], a[k + 8], high);
    }
    for (int k = 0; k < 8; k++) {
      a[2 * k] = __builtin_shuffle(b[k], b[k + 8], low);
      a[2 * k + 1] = __builtin_shuffle(b[k], b[k + 8], high);
    }
  }
  for (int k = 0; k < 16; k++) __builtin_memcpy(to + 16 * k, &a[k], 64);
}""",
}

_KINDS = {"f32": "float", "i32": "int", "f64": "double", "i64": "long long"}
for _given, _made in (("f32", "i32"), ("i32", "f32"), ("f64", "i64"), ("i64", "f64")):
    MOVES[f"tc_bits_{_given}_{_made}"] = f"""\
{_KINDS[_made]} tc_bits_{_given}_{_made}({_KINDS[_given]} x) {{
  return ((union {{ {_KINDS[_given]} a; {_KINDS[_made]} b; }}){{x}}).b;
}}"""
