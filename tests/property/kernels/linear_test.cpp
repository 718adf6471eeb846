// Products of packed weights and activations against double precision, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "property/isa.h"
#include "property/kernels/linear_case.h"
#include "property/reference.h"

namespace quire::test {
namespace {

struct Shape {
  size_t n_rows;
  size_t n_columns;
};

std::vector<Shape> shapes(TensorType type) {
  if (block_values(type) == 256) return {{1, 256}, {15, 512}, {16, 768}, {17, 256}, {40, 512}};
  if (block_values(type) == 32) return {{1, 32}, {15, 96}, {16, 256}, {17, 320}, {40, 64}};
  return {{1, 1}, {15, 7}, {16, 100}, {17, 33}, {40, 64}};
}

constexpr size_t kTokens = 17;

// A matrix, its activations, and the products of both in double precision.
struct Problem {
  TensorType type;
  Shape shape;
  RandomRows rows;
  PackedMatrix matrix;
  std::vector<float> x;  // [kTokens][n_columns]

  Problem(TensorType tensor_type, Shape size, Scales scales, uint64_t seed) : type(tensor_type), shape(size) {
    Random random(seed);
    rows = random_rows(random, type, shape.n_rows, shape.n_columns, scales);
    matrix = packed(type, rows, shape.n_rows, shape.n_columns);
    x = random.normals(kTokens * shape.n_columns);
  }

  // [kTokens][n_rows], with the activations given
  std::vector<Sum> products(const std::vector<double>& activations) const {
    std::vector<Sum> sums(kTokens * shape.n_rows);
    std::vector<float> weights(shape.n_columns);
    const size_t block = block_values(type);
    for (size_t row = 0; row < shape.n_rows; ++row) {
      const uint64_t row_offset = row * row_bytes(type, shape.n_columns);
      dequantize_row(type, rows.bytes.data() + row_offset, weights.data(), shape.n_columns);
      for (size_t t = 0; t < kTokens; ++t) {
        sums[t * shape.n_rows + row] = dot(weights.data(), &rows.largest[row * shape.n_columns / block],
                                           block, &activations[t * shape.n_columns], shape.n_columns);
      }
    }
    return sums;
  }

  // What the tiles of one token hold, decoded.
  std::vector<double> quantized_activations() const {
    std::vector<double> values(x.size());
    for (size_t t = 0; t < kTokens; ++t) {
      const float* from = x.data() + t * shape.n_columns;
      const std::vector<uint8_t> tile = quantized(*ops_by_name("scalar"), from, shape.n_columns, 1, 1);
      for (size_t i = 0; i < shape.n_columns; ++i) {
        values[t * shape.n_columns + i] =
            read_block(tile.data(), i / kBlockColumns, 1, 0).value(i % kBlockColumns);
      }
    }
    return values;
  }
};

constexpr float kUntouchedSum = -12345.0f;

std::string name_of(const LinearRun& run, const Problem& problem) {
  return std::string(run.table.name) + " " + tensor_type_name(problem.type) +
         (run.fast ? " fast" : " precise") + " rows " + std::to_string(problem.shape.n_rows) + " columns " +
         std::to_string(problem.shape.n_columns) + " tiles of " + std::to_string(run.tile_tokens) +
         (run.accumulate ? " accumulating" : "");
}

// The first n_tokens products, each within the rounding of its sum, and nothing written beside them.
void check_products(const LinearRun& run, const Problem& problem, const std::vector<Sum>& expected,
                    size_t n_tokens) {
  const size_t ldo = problem.shape.n_rows + 3;
  constexpr float kBefore = 2.5f;
  std::vector<float> out(kTokens * ldo, kUntouchedSum);
  if (run.accumulate) {
    for (size_t t = 0; t < n_tokens; ++t) std::fill_n(out.begin() + t * ldo, problem.shape.n_rows, kBefore);
  }
  run(problem.x, n_tokens, out.data(), ldo);
  const double n_roundings = 2.0 * problem.shape.n_columns + 4;
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t row = 0; row < ldo; ++row) {
      const float got = out[t * ldo + row];
      if (t >= n_tokens || row >= problem.shape.n_rows) {
        ASSERT_EQ(got, kUntouchedSum)
            << name_of(run, problem) << ": token " << t << " row " << row << " was written";
        continue;
      }
      const Sum& sum = expected[t * problem.shape.n_rows + row];
      const double wanted = sum.value + (run.accumulate ? kBefore : 0.0);
      const double bound = n_roundings * kUnit * (sum.magnitude + std::fabs(wanted)) + 1e-37;
      ASSERT_NEAR(got, wanted, bound)
          << name_of(run, problem) << ": token " << t << " row " << row << " of " << n_tokens << " tokens";
    }
  }
}

void check_problem(const Problem& problem, bool fast) {
  std::vector<double> activations(problem.x.begin(), problem.x.end());
  if (fast && is_quantized(problem.type)) activations = problem.quantized_activations();
  const std::vector<Sum> expected = problem.products(activations);
  for (const Ops* table : tables()) {
    for (size_t n_tokens = 1; n_tokens <= kTokens; ++n_tokens) {
      for (const bool accumulate : {false, true}) {
        check_products({*table, problem.matrix, fast, kTileTokens, accumulate}, problem, expected, n_tokens);
      }
    }
    check_products({*table, problem.matrix, fast, 1, false}, problem, expected, kTokens);
    check_products({*table, problem.matrix, fast, 1, true}, problem, expected, kTokens);
  }
}

class Linear : public testing::TestWithParam<TensorType> {};

TEST_P(Linear, PreciseEqualsDoublePrecision) {
  for (const Shape shape : shapes(GetParam())) {
    check_problem(Problem(GetParam(), shape, Scales::kModerate, 100 + shape.n_rows), false);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Linear, FastEqualsDoublePrecisionOverTheQuantizedActivations) {
  for (const Shape shape : shapes(GetParam())) {
    check_problem(Problem(GetParam(), shape, Scales::kModerate, 200 + shape.n_rows), true);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Linear, AnyFiniteScale) {
  const Shape shape = shapes(GetParam())[3];
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Problem problem(GetParam(), shape, Scales::kAny, 300 + seed);
    check_problem(problem, false);
    check_problem(problem, true);
    if (HasFatalFailure()) return;
  }
}

std::vector<float> run_all(const LinearRun& run, const Problem& problem, size_t first, size_t n_tokens) {
  const size_t columns = problem.shape.n_columns;
  const std::vector<float> x(problem.x.begin() + first * columns,
                             problem.x.begin() + (first + n_tokens) * columns);
  std::vector<float> out(n_tokens * problem.shape.n_rows);
  run(x, n_tokens, out.data(), problem.shape.n_rows);
  return out;
}

// Rows of out [tokens][n_rows] that are equal in every bit.
bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof *a) == 0; }

TEST_P(Linear, ATokensResultDoesNotDependOnItsTile) {
  const Shape shape = shapes(GetParam())[4];
  const Problem problem(GetParam(), shape, Scales::kModerate, 400);
  for (const Ops* table : tables()) {
    for (const bool fast : {false, true}) {
      const std::vector<float> alone = run_all({*table, problem.matrix, fast, 1, false}, problem, 0, kTokens);
      // Windows put each token in every place of tiles of every fill.
      for (size_t first = 0; first < kTokens; ++first) {
        for (size_t n = 1; n <= std::min<size_t>(kTokens - first, 2 * kTileTokens); ++n) {
          const std::vector<float> tiled =
              run_all({*table, problem.matrix, fast, kTileTokens, false}, problem, first, n);
          ASSERT_TRUE(same_bits(tiled.data(), alone.data() + first * shape.n_rows, tiled.size()))
              << table->name << " " << tensor_type_name(GetParam()) << " fast " << fast << " tokens " << first
              << " +" << n;
        }
      }
    }
  }
}

TEST_P(Linear, VectorSetsAgreeBitForBit) {
  const Ops* avx2 = ops_by_name("avx2");
  const Ops* avx512 = ops_by_name("avx512");
  if (avx2 == nullptr || avx512 == nullptr) GTEST_SKIP() << "this machine lacks one of the sets";
  for (const Scales scales : {Scales::kModerate, Scales::kAny}) {
    const Problem problem(GetParam(), shapes(GetParam())[3], scales, 500);
    for (const bool fast : {false, true}) {
      const auto a = run_all({*avx2, problem.matrix, fast, kTileTokens, false}, problem, 0, kTokens);
      const auto b = run_all({*avx512, problem.matrix, fast, kTileTokens, false}, problem, 0, kTokens);
      ASSERT_TRUE(same_bits(a.data(), b.data(), a.size()))
          << tensor_type_name(GetParam()) << " fast " << fast;
    }
  }
}

std::string name_of_linear(const testing::TestParamInfo<TensorType>& info) {
  return tensor_type_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(EveryType, Linear, testing::ValuesIn(kTensorTypes), name_of_linear);

}  // namespace
}  // namespace quire::test
