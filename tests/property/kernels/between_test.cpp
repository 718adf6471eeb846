// What lies between the products: RMS norm, SiLU, GELU, RoPE, and exp as softmax shows it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "property/isa.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
namespace {

constexpr float kUntouched = -12345.0f;
constexpr int kLengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 40, 576, 1000};

void check_rms_norm(const Ops& table, const std::vector<float>& x, const std::vector<float>& weight,
                    float eps) {
  const auto n = static_cast<int>(x.size());
  std::vector<float> out(x.size() + 16, kUntouched);
  table.rms_norm(x.data(), weight.data(), eps, n, out.data());
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  const double inverse = 1.0 / std::sqrt(squares / n + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = x[i] * inverse * weight[i];
    ASSERT_NEAR(out[i], wanted, (n + 8) * kUnit * std::fabs(wanted) + 1e-40) << table.name << " n " << n;
  }
  for (size_t i = x.size(); i < out.size(); ++i) ASSERT_EQ(out[i], kUntouched) << table.name << " n " << n;
}

TEST(RmsNorm, EqualsDoublePrecision) {
  Random random(1);
  for (const Ops* table : tables()) {
    for (const int n : kLengths) {
      for (const double scale : {1.0, 1e-10, 1e10}) {
        check_rms_norm(*table, random.normals(n, scale), random.normals(n), 1e-5f);
        if (HasFatalFailure()) return;
      }
    }
    check_rms_norm(*table, std::vector<float>(33, 0.0f), random.normals(33), 1e-6f);
  }
}

TEST(SiluMultiply, EqualsDoublePrecision) {
  Random random(2);
  for (const Ops* table : tables()) {
    for (const int n : kLengths) {
      std::vector<float> gate = random.normals(n, 4.0);
      if (n > 3) gate[0] = -80.0f, gate[1] = 80.0f, gate[2] = 0.0f, gate[3] = -20.0f;
      const std::vector<float> before = gate;
      const std::vector<float> up = random.normals(n);
      gate.resize(gate.size() + 16, kUntouched);
      table->silu_multiply(gate.data(), up.data(), n);
      for (int i = 0; i < n; ++i) {
        const double g = before[i];
        const double wanted = g / (1 + std::exp(-g)) * up[i];
        ASSERT_NEAR(gate[i], wanted, 1e-6 * std::fabs(wanted) + 1e-38) << table->name << " gate " << g;
      }
      for (size_t i = n; i < gate.size(); ++i) ASSERT_EQ(gate[i], kUntouched) << table->name << " n " << n;
    }
  }
}

TEST(SiluMultiply, ExtremeGates) {
  for (const Ops* table : tables()) {
    std::vector<float> gate = {1e30f, -1e30f, 1e-40f, -1e-40f, 100.0f, -100.0f, -88.0f, 3e38f, -3e38f};
    const std::vector<float> up(gate.size(), 1.0f);
    const std::vector<float> before = gate;
    table->silu_multiply(gate.data(), up.data(), static_cast<int>(gate.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      const double wanted =
          before[i] > -700 ? before[i] / (1 + std::exp(-static_cast<double>(before[i]))) : 0.0;
      // exp stops at e^88 = 1.65e38: what is left of a large negative gate is that part of it.
      const double bound = 1e-6 * std::fabs(wanted) + 1e-38 * std::fabs(before[i]) + 1e-35;
      ASSERT_NEAR(gate[i], wanted, bound) << table->name << " gate " << before[i];
    }
  }
}

TEST(GeluMultiply, EqualsDoublePrecision) {
  Random random(3);
  for (const Ops* table : tables()) {
    for (const int n : kLengths) {
      std::vector<float> gate = random.normals(n, 2.0);
      if (n > 5) gate[0] = -80.0f, gate[1] = 80.0f, gate[2] = 0.0f, gate[3] = -6.0f, gate[4] = 1e20f;
      const std::vector<float> before = gate;
      const std::vector<float> up = random.normals(n);
      gate.resize(gate.size() + 16, kUntouched);
      table->gelu_multiply(gate.data(), up.data(), n);
      for (int i = 0; i < n; ++i) {
        const double g = before[i];
        const double z = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
        const double wanted = 0.5 * g * (1 + std::tanh(z)) * up[i];
        // Of what is left of a negative gate, exp(-2 |z|), the rounding of z counts |z| times.
        ASSERT_NEAR(gate[i], wanted, 1e-6 * std::fabs(wanted) + 1e-7 * std::fabs(up[i]))
            << table->name << " gate " << g;
      }
      for (size_t i = n; i < gate.size(); ++i) ASSERT_EQ(gate[i], kUntouched) << table->name << " n " << n;
    }
  }
}

void check_rope(const Ops& table, int n_heads, int head_dim, int half, float scale) {
  Random random(static_cast<uint64_t>(1000 * half + head_dim));
  const std::vector<float> before = random.normals(static_cast<size_t>(n_heads) * head_dim);
  std::vector<float> cosine(half);
  std::vector<float> sine(half);
  for (int i = 0; i < half; ++i) {
    const double angle = random.uniform(-10, 10);
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
  std::vector<float> x = before;
  x.resize(x.size() + 16, kUntouched);
  table.rope(x.data(), n_heads, head_dim, half, cosine.data(), sine.data(), scale);
  for (int h = 0; h < n_heads; ++h) {
    const float* a = before.data() + h * head_dim;
    const float* got = x.data() + h * head_dim;
    for (int d = 0; d < head_dim; ++d) {
      double wanted = a[d];
      if (d < half)
        wanted = static_cast<double>(a[d]) * cosine[d] - static_cast<double>(a[d + half]) * sine[d];
      if (d >= half && d < 2 * half) {
        wanted =
            static_cast<double>(a[d - half]) * sine[d - half] + static_cast<double>(a[d]) * cosine[d - half];
      }
      ASSERT_NEAR(got[d], wanted * scale, 1e-6 * std::fabs(scale))
          << table.name << " half " << half << " of " << head_dim << " head " << h << " dim " << d;
    }
  }
  for (size_t i = before.size(); i < x.size(); ++i) ASSERT_EQ(x[i], kUntouched);
}

TEST(Rope, EveryHeadSizeAndPartialRotation) {
  for (const Ops* table : tables()) {
    for (const int head_dim : {40, 64, 72, 80, 96, 100, 112, 128, 256}) {
      for (const int half : {head_dim / 2, head_dim / 4, 1, 15, 16, 17, 20}) {
        for (const int n_heads : {1, 3}) check_rope(*table, n_heads, head_dim, half, 0.125f);
        if (HasFatalFailure()) return;
      }
    }
    check_rope(*table, 2, 64, 32, 1.0f);
  }
}

// scores whose maximum is 0 come out of softmax as their exponentials.
void check_exponentials(const Ops& table, std::vector<float> x) {
  for (size_t first = 0; first + 63 <= x.size(); first += 63) {
    float scores[64] = {0.0f};
    std::copy_n(x.data() + first, 63, scores + 1);
    const uint64_t mask = ~uint64_t{0};
    float m = -std::numeric_limits<float>::infinity();
    float l = 0;
    float correction = -1;
    table.softmax(scores, &mask, 1, &m, &l, &correction);
    ASSERT_EQ(m, 0.0f);
    ASSERT_EQ(scores[0], 1.0f);
    ASSERT_EQ(correction, 0.0f);
    double sum = 1;
    for (int i = 0; i < 63; ++i) {
      const double wanted = std::exp(static_cast<double>(x[first + i]));
      ASSERT_NEAR(scores[i + 1], wanted, 3e-7 * wanted) << table.name << " exp(" << x[first + i] << ")";
      sum += wanted;
    }
    ASSERT_NEAR(l, sum, 1e-6 * sum) << table.name;
  }
}

TEST(Exponential, RelativeErrorIsSmall) {
  Random random(4);
  std::vector<float> x;
  for (int i = 0; i < 63 * 1000; ++i) x.push_back(static_cast<float>(random.uniform(-87, 0)));
  for (int i = 0; i < 63 * 100; ++i) x.push_back(static_cast<float>(-std::exp2(random.uniform(-40, 6.4))));
  // Around the halves of ln 2, where the power of two changes.
  for (int n = 0; n < 126; ++n) x.push_back(static_cast<float>(-0.34657359027997264 * (2 * n % 250 + 1)));
  for (const Ops* table : tables()) check_exponentials(*table, x);
}

TEST(Exponential, FarBelowIsExactlyZero) {
  for (const Ops* table : tables()) {
    float scores[64] = {0.0f};
    for (int i = 1; i < 64; ++i)
      scores[i] = i < 32 ? -87.4f * static_cast<float>(i) : -1e30f * static_cast<float>(i);
    scores[63] = -std::numeric_limits<float>::infinity();
    const uint64_t mask = ~uint64_t{0};
    float m = -std::numeric_limits<float>::infinity();
    float l = 0;
    float correction = 0;
    table->softmax(scores, &mask, 1, &m, &l, &correction);
    for (int i = 1; i < 64; ++i) ASSERT_EQ(scores[i], 0.0f) << table->name << " lane " << i;
    ASSERT_EQ(l, 1.0f) << table->name;
  }
}

}  // namespace
}  // namespace quire::test
