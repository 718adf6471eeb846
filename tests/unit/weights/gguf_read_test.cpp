// Well-formed files: what is read is what was written.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "unit/weights/gguf_writer.h"
#include "weights/gguf.h"

namespace quire::test {
namespace {

GgufFile read(const Bytes& bytes) { return GgufFile::from_memory(bytes, "test.gguf"); }

template <typename Call>
std::string error_in(const Call& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

GgufWriter all_types_writer() {
  GgufWriter writer;
  writer.add<uint8_t>("u8", 200).add<int8_t>("i8", -100).add<uint16_t>("u16", 60000);
  writer.add<int16_t>("i16", -30000).add<uint32_t>("u32", 4000000000u).add<int32_t>("i32", -2000000000);
  writer.add<float>("f32", 1.5f).add<bool>("true", true).add<bool>("false", false);
  writer.add("string", "h\xc3\xa9llo").add("empty", "");
  writer.add<uint64_t>("u64", 18000000000000000000u).add<int64_t>("i64", -9000000000000000000);
  writer.add<double>("f64", 0.1);
  return writer;
}

GgufWriter all_arrays_writer() {
  GgufWriter writer;
  writer.add<uint8_t>("odd", 1);  // makes what follows unaligned
  writer.add_array<uint8_t>("a.u8", {0, 255}).add_array<int8_t>("a.i8", {-128, 127});
  writer.add_array<uint16_t>("a.u16", {0, 65535}).add_array<int16_t>("a.i16", {-32768, 32767});
  writer.add_array<uint32_t>("a.u32", {0, 4294967295u}).add_array<int32_t>("a.i32", {-2147483647 - 1, 3});
  writer.add_array<uint64_t>("a.u64", {0, 1})
      .add_array<int64_t>("a.i64", {std::numeric_limits<int64_t>::min()});
  writer.add_array<uint64_t>("a.huge", {1, std::numeric_limits<uint64_t>::max()});
  writer.add_array<float>("a.f32", {1.5f, -0.0f}).add_array<double>("a.f64", {0.1, 1e300});
  writer.add_array<bool>("a.bool", {true, false, true});
  writer.add_array("a.string", std::vector<std::string>{"", "two words", "\xf0\x9f\x98\x80"});
  writer.add_array<int32_t>("a.none", {}).add_array("a.no_string", std::vector<std::string>{});
  return writer;
}

TEST(GgufRead, EveryScalarTypeInBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = all_types_writer();
    writer.version = version;
    const Bytes bytes = writer.build();
    const GgufFile file = read(bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.file_size(), bytes.size());
    EXPECT_EQ(file.path(), "test.gguf");
    ASSERT_EQ(file.metadata().size(), 14u);
    EXPECT_EQ(file.metadata()[0].key, "u8");
    EXPECT_EQ(file.metadata()[13].key, "f64");
    EXPECT_EQ(std::get<uint8_t>(*file.find("u8")), 200);
    EXPECT_EQ(std::get<int8_t>(*file.find("i8")), -100);
    EXPECT_EQ(std::get<uint16_t>(*file.find("u16")), 60000);
    EXPECT_EQ(std::get<int16_t>(*file.find("i16")), -30000);
    EXPECT_EQ(std::get<uint32_t>(*file.find("u32")), 4000000000u);
    EXPECT_EQ(std::get<int32_t>(*file.find("i32")), -2000000000);
    EXPECT_EQ(std::get<float>(*file.find("f32")), 1.5f);
    EXPECT_EQ(std::get<uint64_t>(*file.find("u64")), 18000000000000000000u);
    EXPECT_EQ(std::get<int64_t>(*file.find("i64")), -9000000000000000000);
    EXPECT_EQ(std::get<double>(*file.find("f64")), 0.1);
    EXPECT_EQ(file.find("U8"), nullptr);
    EXPECT_EQ(file.find(""), nullptr);
  }
}

TEST(GgufRead, TypedGetters) {
  const Bytes bytes = all_types_writer().build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(file.get_uint("u8"), 200u);
  EXPECT_EQ(file.get_uint("u64"), 18000000000000000000u);
  EXPECT_EQ(file.get_uint_or("u16", 1), 60000u);
  EXPECT_EQ(file.get_uint_or("none", 7), 7u);
  EXPECT_EQ(file.get_float("f32"), 1.5);
  EXPECT_EQ(file.get_float("f64"), 0.1);
  EXPECT_EQ(file.get_float_or("none", 2.5), 2.5);
  EXPECT_TRUE(file.get_bool("true"));
  EXPECT_FALSE(file.get_bool_or("false", true));
  EXPECT_TRUE(file.get_bool_or("none", true));
  EXPECT_EQ(file.get_string("string"), "h\xc3\xa9llo");
  EXPECT_EQ(file.get_string_or("empty", "x"), "");
  EXPECT_EQ(file.get_string_or("none", "x"), "x");
}

TEST(GgufRead, PositiveSignedIntegersAreUints) {
  GgufWriter writer;
  writer.add<int8_t>("a", 1).add<int16_t>("b", 2).add<int32_t>("c", 3).add<int64_t>("d", 0);
  const Bytes bytes = writer.build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(file.get_uint("a") + file.get_uint("b") + file.get_uint("c") + file.get_uint("d"), 6u);
}

TEST(GgufRead, GetterErrorsNameKeyAndBothTypes) {
  const Bytes bytes = all_types_writer().add_array<uint8_t>("scores", {1}).build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(error_in([&] { return file.get_uint("none"); }), "test.gguf: the metadata key 'none' is missing");
  EXPECT_EQ(error_in([&] { return file.get_uint("string"); }),
            "test.gguf: the metadata key 'string' has type string, but an integer is wanted");
  EXPECT_EQ(error_in([&] { return file.get_uint_or("f32", 1); }),
            "test.gguf: the metadata key 'f32' has type f32, but an integer is wanted");
  EXPECT_EQ(error_in([&] { return file.get_uint("true"); }),
            "test.gguf: the metadata key 'true' has type bool, but an integer is wanted");
  EXPECT_EQ(error_in([&] { return file.get_uint("i8"); }),
            "test.gguf: the metadata key 'i8' is -100 (i8), but it must not be negative");
  EXPECT_EQ(error_in([&] { return file.get_float("u32"); }),
            "test.gguf: the metadata key 'u32' has type u32, but f32 or f64 is wanted");
  EXPECT_EQ(error_in([&] { return file.get_bool_or("u8", true); }),
            "test.gguf: the metadata key 'u8' has type u8, but bool is wanted");
  EXPECT_EQ(error_in([&] { return file.get_string("scores"); }),
            "test.gguf: the metadata key 'scores' has type array of u8, but string is wanted");
  EXPECT_EQ(error_in([&] { return file.get_float_array("scores"); }),
            "test.gguf: the metadata key 'scores' has type array of u8, but array of f32 or f64 is wanted");
}

TEST(GgufRead, EveryArrayType) {
  const Bytes bytes = all_arrays_writer().build();
  const GgufFile file = read(bytes);
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(file.get_int_array("a.u8"), (Ints{0, 255}));
  EXPECT_EQ(file.get_int_array("a.i8"), (Ints{-128, 127}));
  EXPECT_EQ(file.get_int_array("a.u16"), (Ints{0, 65535}));
  EXPECT_EQ(file.get_int_array("a.i16"), (Ints{-32768, 32767}));
  EXPECT_EQ(file.get_int_array("a.u32"), (Ints{0, 4294967295}));
  EXPECT_EQ(file.get_int_array("a.i32"), (Ints{-2147483648, 3}));
  EXPECT_EQ(file.get_int_array("a.u64"), (Ints{0, 1}));
  EXPECT_EQ(file.get_int_array("a.i64"), (Ints{std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(file.get_int_array("a.none"), Ints{});
  EXPECT_EQ(file.get_float_array("a.f32"), (std::vector<float>{1.5f, -0.0f}));
  EXPECT_EQ(error_in([&] { return file.get_bool_array("a.f32"); }),
            "test.gguf: the metadata key 'a.f32' has type array of f32, but array of bool is wanted");
  EXPECT_EQ(file.get_float_array("a.f64"),
            (std::vector<float>{0.1f, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(file.get_string_array("a.string"),
            (std::vector<std::string_view>{"", "two words", "\xf0\x9f\x98\x80"}));
  EXPECT_TRUE(file.get_string_array("a.no_string").empty());
  const auto& bools = std::get<MetadataArray>(*file.find("a.bool"));
  EXPECT_EQ(bools.element_type, MetadataType::Bool);
  EXPECT_EQ(bools.n_values, 3u);
  EXPECT_EQ(bools.size_bytes, 3u);
  EXPECT_EQ(bools.data[2], std::byte{1});
}

TEST(GgufRead, ArrayGetterErrors) {
  const Bytes bytes = all_arrays_writer().build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(
      error_in([&] { return file.get_int_array("a.huge"); }),
      "test.gguf: value 1 of the metadata key 'a.huge' is 18446744073709551615, which does not fit in i64");
  EXPECT_EQ(
      error_in([&] { return file.get_int_array("a.bool"); }),
      "test.gguf: the metadata key 'a.bool' has type array of bool, but array of an integer type is wanted");
  EXPECT_EQ(
      error_in([&] { return file.get_int_array("a.string"); }),
      "test.gguf: the metadata key 'a.string' has type array of string, but array of an integer type is "
      "wanted");
  EXPECT_EQ(error_in([&] { return file.get_string_array("a.f32"); }),
            "test.gguf: the metadata key 'a.f32' has type array of f32, but array of string is wanted");
  EXPECT_EQ(
      error_in([&] { return file.get_float_array("a.string"); }),
      "test.gguf: the metadata key 'a.string' has type array of string, but array of f32 or f64 is wanted");
  EXPECT_EQ(error_in([&] { return file.get_int_array("odd"); }),
            "test.gguf: the metadata key 'odd' has type u8, but array of an integer type is wanted");
  EXPECT_EQ(error_in([&] { return file.get_string_array("none"); }),
            "test.gguf: the metadata key 'none' is missing");
}

TEST(GgufRead, TensorsOfEveryType) {
  for (uint32_t number = 0; number < 31; ++number) {
    const auto type = tensor_type_from_number(number);
    if (!type) continue;
    const Bytes data = pattern_bytes(row_bytes(*type, 512) * 6, number + 1);
    const Bytes bytes = GgufWriter().add_tensor("w", {512, 2, 3}, *type, data).build();
    const GgufFile file = read(bytes);
    const TensorInfo& tensor = file.tensor("w");
    EXPECT_EQ(tensor.type, *type);
    EXPECT_EQ(tensor.size_bytes, data.size());
    EXPECT_EQ(tensor.row_length(), 512u);
    EXPECT_EQ(tensor.n_rows(), 6u);
    EXPECT_EQ(Bytes(tensor.data, tensor.data + tensor.size_bytes), data);
    EXPECT_EQ(tensor.data, bytes.data() + tensor.file_offset);
  }
}

TEST(GgufRead, SeveralTensorsAndAlignments) {
  for (const uint32_t alignment : {8u, 16u, 32u, 64u, 4096u, 1u << 20}) {
    GgufWriter writer;
    writer.alignment_bytes = alignment;
    writer.add<uint32_t>("general.alignment", alignment);
    writer.add_tensor("b", {3}, TensorType::F32, pattern_bytes(12, 1));
    writer.add_tensor("a", {32, 1, 1, 2}, TensorType::Q4_1, pattern_bytes(40, 2));
    writer.add_tensor("c", {1}, TensorType::F16, pattern_bytes(2, 3));
    const Bytes bytes = writer.build();
    const GgufFile file = read(bytes);
    EXPECT_EQ(file.alignment_bytes(), alignment);
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.tensors()[0].name, "b");
    EXPECT_EQ(file.tensors()[1].name, "a");
    EXPECT_EQ(file.tensors()[1].n_rows(), 2u);
    EXPECT_EQ(file.tensor("c").n_rows(), 1u);
    for (const TensorInfo& tensor : file.tensors()) {
      EXPECT_EQ(tensor.file_offset % alignment, 0u);
      EXPECT_EQ(*tensor.data, pattern_bytes(1, tensor.name == "b" ? 1 : tensor.name == "a" ? 2 : 3)[0]);
    }
    EXPECT_EQ(file.find_tensor("d"), nullptr);
    EXPECT_EQ(error_in([&] { return &file.tensor("d"); }), "test.gguf: the tensor 'd' is missing");
  }
}

TEST(GgufRead, NoTensorsAndNoMetadata) {
  const Bytes bytes = GgufWriter().build();
  const GgufFile file = read(bytes);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.fingerprint().size(), 16u);
}

TEST(GgufRead, OverlappingTensorsAndTrailingBytesAreRead) {
  GgufWriter writer;
  writer.add_tensor("a", {64}, TensorType::F32, pattern_bytes(256));
  writer.add_info("b", {16}, 0, 64);
  Bytes bytes = writer.build();
  bytes.resize(bytes.size() + 100);
  EXPECT_EQ(read(bytes).tensor("b").size_bytes, 64u);
}

TEST(GgufRead, ViewsSurviveAMove) {
  const Bytes bytes = all_types_writer().add_tensor("w", {1}, TensorType::F32, pattern_bytes(4)).build();
  GgufFile first = read(bytes);
  GgufFile second = std::move(first);
  EXPECT_EQ(second.get_uint("u8"), 200u);
  EXPECT_EQ(second.tensor("w").data, bytes.data() + bytes.size() - 4);
  first = std::move(second);
  EXPECT_EQ(first.get_string("string"), "h\xc3\xa9llo");
  static_assert(!std::is_copy_constructible_v<GgufFile>);
}

TEST(GgufRead, FingerprintFollowsMetadataInfosAndData) {
  const auto fingerprint = [](uint32_t value, const char* name, uint32_t seed) {
    GgufWriter writer;
    writer.add<uint32_t>("key", value).add_tensor(name, {4096}, TensorType::F32, pattern_bytes(16384, seed));
    return read(writer.build()).fingerprint();
  };
  const std::string base = fingerprint(1, "w", 1);
  EXPECT_EQ(base, fingerprint(1, "w", 1));
  EXPECT_EQ(base.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(base, fingerprint(2, "w", 1));
  EXPECT_NE(base, fingerprint(1, "v", 1));
  EXPECT_NE(base, fingerprint(1, "w", 2));
  // Frozen: calibrations are kept under it.
  EXPECT_EQ(base, "895de45f274f8a6e");
}

}  // namespace
}  // namespace quire::test
