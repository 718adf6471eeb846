// Functions between the products: exp, RMS norm, SiLU, GELU, RoPE.

// exp(x) for x <= 88, within 2 ulp; exactly 0 below -87.3 (where the true value is under 2^-126).
// x = n ln2 + r, |r| <= ln2 / 2; e^r by its Taylor series to r^7 (remainder 5e-9 relative).
QUIRE_INLINE F32x16 exponential(F32x16 x) {
  constexpr float kLowest = -87.3f;
  const F32x16 clamped = min(max(x, set1(kLowest)), set1(88.0f));
  const F32x16 n = round_even(mul(clamped, set1(1.44269504f)));
  F32x16 r = fma(n, set1(-0.693359375f), clamped);  // ln2 in two parts: the first has 9 bits, n * it is exact
  r = fma(n, set1(2.12194440e-4f), r);
  F32x16 p = set1(1.98412698e-4f);
  p = fma(p, r, set1(1.38888889e-3f));
  p = fma(p, r, set1(8.33333333e-3f));
  p = fma(p, r, set1(4.16666667e-2f));
  p = fma(p, r, set1(1.66666667e-1f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return where_at_least(x, kLowest, scale_by_power(p, n));
}

// tanh(x) within 4e-7 of its size. Below 1/2 a polynomial in x^2 (interpolated at Chebyshev's points, 4e-9),
// from there on 1 - 2 / (e^2|x| + 1), whose difference from the polynomial's value at 1/2 is added with the
// sign of x.
QUIRE_INLINE F32x16 hyperbolic_tangent(F32x16 x) {
  constexpr float kNear = 0.5f;
  const F32x16 size = abs(x);
  const F32x16 near = min(max(x, set1(-kNear)), set1(kNear));
  const F32x16 square = mul(near, near);
  F32x16 p = set1(-6.61201403e-3f);
  p = fma(p, square, set1(2.12738216e-2f));
  p = fma(p, square, set1(-5.38932234e-2f));
  p = fma(p, square, set1(1.33329004e-1f));
  p = fma(p, square, set1(-3.33333254e-1f));
  const F32x16 low = fma(mul(p, square), near, near);
  const F32x16 high = sub(set1(1.0f), div(set1(2.0f), add(exponential(add(size, size)), set1(1.0f))));
  const F32x16 rest = where_at_least(size, kNear, sub(high, abs(low)));
  return fma(rest, add(near, near), low);  // twice `near` is 1 or -1 where there is a rest
}

void cap_scores(float* scores, int n, float cap) {
  const F32x16 inverse = set1(1.0f / cap);
  for (int i = 0; i < n; i += 16) {
    store(scores + i, mul(hyperbolic_tangent(mul(load(scores + i), inverse)), set1(cap)));
  }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  const int whole = n & ~15;
  const int rest = n - whole;
  F32x16 squares = zero();
  for (int i = 0; i < whole; i += 16) squares = fma(load(x + i), load(x + i), squares);
  if (rest > 0) squares = fma(load_partial(x + whole, rest), load_partial(x + whole, rest), squares);
  const float mean = reduce_add(squares) / (float)n;
  const F32x16 inverse = set1(1.0f / __builtin_sqrtf(mean + eps));
  for (int i = 0; i < whole; i += 16) store(out + i, mul(mul(load(x + i), inverse), load(weight + i)));
  if (rest > 0) {
    const F32x16 y = mul(mul(load_partial(x + whole, rest), inverse), load_partial(weight + whole, rest));
    store_partial(out + whole, y, rest);
  }
}

// g / (1 + exp(-g)) * u
QUIRE_INLINE F32x16 silu_times(F32x16 g, F32x16 u) {
  return mul(div(g, add(set1(1.0f), exponential(sub(zero(), g)))), u);
}

void silu_multiply(float* gate, const float* up, int n) {
  const int whole = n & ~15;
  for (int i = 0; i < whole; i += 16) store(gate + i, silu_times(load(gate + i), load(up + i)));
  const int rest = n - whole;
  if (rest > 0) {
    store_partial(gate + whole, silu_times(load_partial(gate + whole, rest), load_partial(up + whole, rest)),
                  rest);
  }
}

// g / 2 (1 + tanh(z)) * u, z = sqrt(2 / pi) (g + 0.044715 g^3): half of 1 + tanh(z) is 1 / (1 + exp(-2 z)).
QUIRE_INLINE F32x16 gelu_times(F32x16 g, F32x16 u) {
  constexpr float kLinear = -1.5957691216f;  // -2 sqrt(2 / pi)
  constexpr float kCubic = -0.0713548163f;   // that times 0.044715
  const F32x16 z = mul(g, fma(mul(g, g), set1(kCubic), set1(kLinear)));
  return mul(div(g, add(set1(1.0f), exponential(z))), u);
}

void gelu_multiply(float* gate, const float* up, int n) {
  const int whole = n & ~15;
  for (int i = 0; i < whole; i += 16) store(gate + i, gelu_times(load(gate + i), load(up + i)));
  const int rest = n - whole;
  if (rest > 0) {
    store_partial(gate + whole, gelu_times(load_partial(gate + whole, rest), load_partial(up + whole, rest)),
                  rest);
  }
}

QUIRE_INLINE void rotate_pair(float* a, float* b, F32x16 x, F32x16 y, F32x16 c, F32x16 s, int n) {
  const F32x16 first = sub(mul(x, c), mul(y, s));
  const F32x16 second = add(mul(x, s), mul(y, c));
  if (n >= 16) {
    store(a, first);
    store(b, second);
  } else {
    store_partial(a, first, n);
    store_partial(b, second, n);
  }
}

void rope(float* x, int n_heads, int head_dim, int half, const float* cosine, const float* sine,
          float scale) {
  const F32x16 factor = set1(scale);
  for (int h = 0; h < n_heads; ++h, x += head_dim) {
    int i = 0;
    for (; i + 16 <= half; i += 16) {
      const F32x16 c = mul(load(cosine + i), factor);
      const F32x16 s = mul(load(sine + i), factor);
      rotate_pair(x + i, x + half + i, load(x + i), load(x + half + i), c, s, 16);
    }
    if (i < half) {
      const int n = half - i;
      const F32x16 c = mul(load_partial(cosine + i, n), factor);
      const F32x16 s = mul(load_partial(sine + i, n), factor);
      rotate_pair(x + i, x + half + i, load_partial(x + i, n), load_partial(x + half + i, n), c, s, n);
    }
    for (int j = 2 * half; j < head_dim; ++j) x[j] *= scale;
  }
}
