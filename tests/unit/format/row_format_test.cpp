#include "format/row_format.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace quire {
namespace {

TEST(RowFormat, TheCatalogueIsInTheOrderOfTheEnum) {
  size_t index = 0;
  for (const FormatInfo& entry : kFormats) {
    EXPECT_EQ(static_cast<size_t>(entry.format), index++);
    EXPECT_EQ(&info(entry.format), &entry);
    EXPECT_GE(entry.largest, 448.0);
    EXPECT_NE(std::string(entry.summary), "");
  }
}

TEST(RowFormat, NamesAreDistinctAndFoundExactly) {
  std::set<std::string> names;
  for (const FormatInfo& entry : kFormats) {
    names.insert(entry.name);
    EXPECT_EQ(format_by_name(entry.name), entry.format);
  }
  EXPECT_EQ(names.size(), std::size(kFormats));
  for (const char* name : {"", "F16", "f16 ", "f1", "f162", "int8"})
    EXPECT_EQ(format_by_name(name), std::nullopt) << name;
}

TEST(RowFormat, BytesOfARow) {
  EXPECT_EQ(row_bytes(Format::kF32, 64), 256u);
  EXPECT_EQ(row_bytes(Format::kF16, 64), 128u);
  EXPECT_EQ(row_bytes(Format::kBF16, 100), 200u);
  EXPECT_EQ(row_bytes(Format::kBF16, 0), 0u);
  EXPECT_EQ(row_bytes(Format::kFP8, 100), 100u);
}

}  // namespace
}  // namespace quire
