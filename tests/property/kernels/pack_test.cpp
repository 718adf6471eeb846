// Packing keeps every weight: unpack_row gives back what the file's blocks decode to.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "property/kernels/linear_case.h"

namespace quire::test {
namespace {

void expect_rows(TensorType type, const RandomRows& rows, const PackedMatrix& matrix,
                 const std::vector<uint32_t>& order) {
  std::vector<float> expected(matrix.n_columns);
  std::vector<float> got(matrix.n_columns);
  for (size_t row = 0; row < matrix.n_rows; ++row) {
    dequantize_row(type, rows.bytes.data() + order[row] * row_bytes(type, matrix.n_columns), expected.data(),
                   matrix.n_columns);
    std::fill(got.begin(), got.end(), -1.0f);
    matrix.unpack_row(row, got.data());
    ASSERT_EQ(got, expected) << tensor_type_name(type) << " row " << row << " of " << matrix.n_rows;
  }
}

class Pack : public testing::TestWithParam<TensorType> {};

TEST_P(Pack, UnpackedRowsEqualTheFiles) {
  Random random(1);
  for (const size_t n_rows : {1, 15, 16, 17, 40, 130}) {
    const size_t n_columns = is_quantized(GetParam()) ? 2 * block_values(GetParam()) : 37;
    const RandomRows rows = random_rows(random, GetParam(), n_rows, n_columns, Scales::kAny);
    std::vector<uint32_t> order(n_rows);
    std::iota(order.begin(), order.end(), 0u);
    expect_rows(GetParam(), rows, packed(GetParam(), rows, n_rows, n_columns), order);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Pack, AnOrderPermutesTheRows) {
  Random random(2);
  constexpr size_t kRows = 40;
  const size_t n_columns = std::max<size_t>(block_values(GetParam()), 5);
  const RandomRows rows = random_rows(random, GetParam(), kRows, n_columns);
  std::vector<uint32_t> order(kRows);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = kRows - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  Team team(1);
  expect_rows(GetParam(), rows, pack(GetParam(), rows.bytes.data(), kRows, n_columns, team, order), order);
}

TEST_P(Pack, MembersOfATeamGiveTheSameBytes) {
  Random random(3);
  constexpr size_t kRows = 201;
  const size_t n_columns = std::max<size_t>(block_values(GetParam()), 5);
  const RandomRows rows = random_rows(random, GetParam(), kRows, n_columns);
  const PackedMatrix alone = packed(GetParam(), rows, kRows, n_columns);
  Team team(3);
  const PackedMatrix shared = pack(GetParam(), rows.bytes.data(), kRows, n_columns, team);
  ASSERT_EQ(alone.panel_bytes, panel_bytes(alone.kind, n_columns));
  ASSERT_TRUE(
      std::equal(alone.panel(0), alone.panel(0) + alone.n_panels() * alone.panel_bytes, shared.panel(0)));
}

// The packed form is not larger than the file's, but for the K formats' scales (panel.h).
TEST_P(Pack, PanelsTakeTheFilesBytes) {
  const size_t n_columns = 512;
  const auto file = static_cast<double>(row_bytes(GetParam(), n_columns) * kPanelRows);
  const auto panel = static_cast<double>(panel_bytes(panel_kind(GetParam()), n_columns));
  EXPECT_GE(panel, file);
  EXPECT_LE(panel, file * (block_values(GetParam()) == 256 ? 1.03 : 1.0));
}

std::string name_of_packed(const testing::TestParamInfo<TensorType>& info) {
  return tensor_type_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(EveryType, Pack, testing::ValuesIn(kTensorTypes), name_of_packed);

}  // namespace
}  // namespace quire::test
