#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "unit/weights/gguf_writer.h"

namespace quire::test {
namespace {

using Shape = std::vector<uint64_t>;

// A file of this header and so many bytes of data; n_header: what the file says, if not the truth.
Bytes file_of(std::string_view header, size_t n_data, uint64_t n_header = 0) {
  ByteWriter writer;
  writer.put<uint64_t>(n_header > 0 ? n_header : header.size()).put_text(header);
  for (size_t i = 0; i < n_data; ++i) writer.put<uint8_t>(static_cast<uint8_t>(i));
  return writer.bytes();
}

std::string safetensors_error(std::span<const std::byte> bytes) {
  try {
    (void)SafetensorsFile::from_memory(bytes, "bad.safetensors");
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("bad.safetensors: ", 0), 0u) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_LT(what.size(), 500u);
    return what;
  }
  return "no error";
}

std::string tensor_json(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, KeepsWhatWasWritten) {
  const std::array<float, 6> values = {0.0f, -1.5f, 3.25f, 1e-3f, 65504.0f, -0.0f};
  SafetensorsWriter writer;
  writer.add_text("who", "a \"quoted\" \\ line\nand a tab\t\x01 \xc3\xa9");
  writer.add("whole", {2, 3}, values, SafetensorsType::kF32);
  writer.add("half", {6}, values, SafetensorsType::kF16);
  writer.add("brain", {3, 1, 2}, values, SafetensorsType::kBF16);
  writer.add("none", {0, 4}, {}, SafetensorsType::kF32);
  writer.add("one", {}, std::span(values).subspan(2, 1), SafetensorsType::kF32);
  const Bytes bytes = writer.bytes();
  const SafetensorsFile file = SafetensorsFile::from_memory(bytes, "memory");
  EXPECT_EQ(file.metadata().at("who"), "a \"quoted\" \\ line\nand a tab\t\x01 \xc3\xa9");
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.read("whole", Shape{2, 3}), std::vector<float>(values.begin(), values.end()));
  const std::vector<float> half = file.read("half", Shape{6});
  const std::vector<float> brain = file.read("brain", Shape{3, 1, 2});
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(float_to_bits(half[i]), float_to_bits(f16_to_f32(f32_to_f16(values[i]))));
    EXPECT_EQ(float_to_bits(brain[i]), float_to_bits(bf16_to_f32(f32_to_bf16(values[i]))));
  }
  EXPECT_TRUE(file.read("none", Shape{0, 4}).empty());
  EXPECT_EQ(file.read("one", Shape{}), std::vector<float>{3.25f});
  EXPECT_EQ(file.find("two"), nullptr);
  EXPECT_EQ(writer.bytes(), bytes);
}

TEST(Safetensors, DataBeginsAtAMultipleOfEight) {
  for (int n = 0; n < 9; ++n) {
    SafetensorsWriter writer;
    writer.add_text(std::string(static_cast<size_t>(n), 'x'), "");
    const Bytes bytes = writer.bytes();
    EXPECT_EQ(bytes.size() % 8, 0u);
    (void)SafetensorsFile::from_memory(bytes, "memory");
  }
}

TEST(Safetensors, ReadsHeadersAsOthersWriteThem) {
  const std::string header =
      "{ \"__metadata__\" : {\"a\":\"\\u00e9\\ud83d\\ude00\\/\"} "
      ",\n\t\"b\":{\"shape\":[2],\"data_offsets\":[0,4],"
      "\"dtype\":\"BF16\"},\"a\":{\"data_offsets\":[ 4 , 12 ],\"dtype\":\"I64\",\"shape\":[1]}}   ";
  const Bytes bytes = file_of(header, 12);
  const SafetensorsFile file = SafetensorsFile::from_memory(bytes, "memory");
  EXPECT_EQ(file.metadata().at("a"), "\xc3\xa9\xf0\x9f\x98\x80/");
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[1].dtype, "I64");
  EXPECT_THROW((void)file.read("a", Shape{1}), Error);  // no floats
}

TEST(Safetensors, ALargeHonestHeaderIsRead) {
  std::string header = R"({"__metadata__":{"text":")" + std::string(20'000'000, 'x') + R"("}})";
  const Bytes bytes = file_of(header, 0);
  EXPECT_EQ(SafetensorsFile::from_memory(bytes, "memory").metadata().at("text").size(), 20'000'000u);
}

TEST(Safetensors, SaysWhatIsWrongWithAReading) {
  const std::array<float, 6> values{};
  SafetensorsWriter writer;
  writer.add("t", {2, 3}, values, SafetensorsType::kF32);
  const Bytes bytes = writer.bytes();
  const SafetensorsFile file = SafetensorsFile::from_memory(bytes, "memory");
  const auto error = [&](const char* name, const Shape& shape) {
    try {
      (void)file.read(name, shape);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error("t", {3, 2}).find("has the shape [2, 3] where [3, 2] is wanted"), std::string::npos);
  EXPECT_NE(error("u", {3, 2}).find("no tensor 'u'"), std::string::npos);
}

TEST(SafetensorsHostile, EveryTruncationIsRefused) {
  const std::array<float, 6> values{};
  SafetensorsWriter writer;
  writer.add_text("k", "v");
  writer.add("t", {2, 3}, values, SafetensorsType::kF32);
  const Bytes bytes = writer.bytes();
  ASSERT_EQ(safetensors_error(bytes), "no error");
  for (size_t n = 0; n < bytes.size(); ++n)
    ASSERT_NE(safetensors_error(std::span(bytes).first(n)), "no error") << n;
}

TEST(SafetensorsHostile, LengthsOfHeaders) {
  for (const uint64_t n :
       {~uint64_t{0}, ~uint64_t{0} - 7, ~uint64_t{0} - 8, uint64_t{1} << 63, uint64_t{3}}) {
    EXPECT_NE(safetensors_error(file_of("{}", 0, n)).find("header would have " + std::to_string(n)),
              std::string::npos)
        << n;
  }
  EXPECT_NE(safetensors_error(file_of("", 0, 0)), "no error");
}

struct Hostile {
  std::string header;
  size_t n_data;
  const char* says;
};

TEST(SafetensorsHostile, Tensors) {
  const std::string most = "18446744073709551615";
  const std::vector<Hostile> cases = {
      {tensor_json("F32", "[2]", "[0,4]"), 4, "takes 8 bytes by its type and shape, and has 4"},
      {tensor_json("F32", "[1]", "[0,8]"), 8, "takes 4 bytes by its type and shape, and has 8"},
      {tensor_json("F32", "[4294967296,4294967296]", "[0,0]"), 0, "more values than there can be"},
      {tensor_json("F32", "[4611686018427387904]", "[0,0]"), 0, "more values than there can be"},
      {tensor_json("F32", "[" + most + "]", "[0,0]"), 0, "more values than there can be"},
      {tensor_json("X99", "[1]", "[0,4]"), 4, "unknown type 'X99'"},
      {tensor_json("f32", "[1]", "[0,4]"), 4, "unknown type 'f32'"},
      {tensor_json("F32", "[1]", "[4,0]"), 4, "ends before it begins"},
      {tensor_json("F32", "[1]", "[0,4]"), 3, "ends at byte 4 of the data, which has 3"},
      {tensor_json("F32", "[1]", "[" + most + "," + most + "]"), 4, "of the data, which has 4"},
      {tensor_json("F32", "[1]", "[4,8]"), 8, "belong to no tensor"},
      {tensor_json("F32", "[1]", "[0,4]"), 8, "behind the last tensor"},
      {tensor_json("F32", "[-1]", "[0,4]"), 4, "a negative number"},
      {tensor_json("F32", "[1.0]", "[0,4]"), 4, "',' is wanted|']' is wanted"},
      {tensor_json("F32", "[1e0]", "[0,4]"), 4, "']' is wanted"},
      {tensor_json("F32", "[01]", "[0,4]"), 4, "a whole number is wanted"},
      {tensor_json("F32", "[18446744073709551616]", "[0,4]"), 4, "does not fit 64 bits"},
      {tensor_json("F32", "[1]", "[0]"), 4, "are not two numbers"},
      {tensor_json("F32", "[1]", "[0,4,4]"), 4, "are not two numbers"},
      {tensor_json("F32", "[1],\"shape\":[1]", "[0,4]"), 4, "shape of tensor 't' stands there twice"},
      {tensor_json("F32", "[1],\"strides\":[1]", "[0,4]"), 4, "unknown field 'strides'"},
      {tensor_json("F32", "[[1]]", "[0,4]"), 4, "a whole number is wanted"},
      {R"({"t":{"dtype":"F32","shape":[1]}})", 4, "lacks its dtype, shape or data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "two tensors of the name 'a'"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlaps"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "'a' stands there twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ stands there twice"},
      {R"({"__metadata__":{"a":1}})", 0, "a string is wanted"},
      {R"({"__metadata__":{"a":"\ud800"}})", 0, "half of a surrogate pair"},
      {R"({"__metadata__":{"a":"\udc00"}})", 0, "half of a surrogate pair"},
      {R"({"__metadata__":{"a":"\q"}})", 0, "an unknown escape"},
      {"{\"__metadata__\":{\"a\":\"\n\"}}", 0, "a control character"},
      {R"({"__metadata__":{"a":"b"},})", 0, "a string is wanted"},
      {R"({} {})", 0, "something behind its end"},
      {R"([])", 0, "'{' is wanted"},
      {std::string(100'000, '{'), 0, "a string is wanted"},
      {R"({"a":)" + std::string(100'000, '['), 0, "'{' is wanted"},
  };
  for (const Hostile& each : cases) {
    const std::string error = safetensors_error(file_of(each.header, each.n_data));
    const std::string says = each.says;
    const size_t bar = says.find('|');
    const bool found = error.find(says.substr(0, bar)) != std::string::npos ||
                       (bar != std::string::npos && error.find(says.substr(bar + 1)) != std::string::npos);
    EXPECT_TRUE(found) << each.header.substr(0, 120) << "\n" << error;
  }
}

TEST(SafetensorsHostile, NamesAreShownOnOneLine) {
  const std::string error =
      safetensors_error(file_of(R"({"a\nb\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8));
  EXPECT_NE(error.find("'a\\x0ab\\x1b[31m'"), std::string::npos) << error;
}

}  // namespace
}  // namespace quire::test
