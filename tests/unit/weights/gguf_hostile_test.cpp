// Broken and hostile files: each is refused with one sentence that says what is wrong and where.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "unit/weights/gguf_writer.h"
#include "weights/gguf.h"

namespace quire::test {
namespace {

std::string gguf_error(std::span<const std::byte> bytes) {
  try {
    (void)GgufFile::from_memory(bytes, "bad.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string gguf_error(const GgufWriter& writer) { return gguf_error(writer.build()); }

Bytes text_bytes(std::string_view text) { return ByteWriter().put_text(text).bytes(); }

// A sane file of about 1.5 kB with every kind of thing in it.
Bytes small_file(uint32_t version = 3) {
  GgufWriter writer;
  writer.version = version;
  writer.add<uint32_t>("general.alignment", 32).add("general.name", "small").add<bool>("flag", true);
  writer.add_array<float>("scores", {1, 2, 3}).add_array("tokens", std::vector<std::string>{"a", "", "ccc"});
  writer.add<double>("f64", 1).add<uint8_t>("u8", 1);
  writer.add_tensor("a", {32, 2}, TensorType::Q4_1, pattern_bytes(40));
  writer.add_tensor("b", {256}, TensorType::Q6_K, pattern_bytes(210));
  writer.add_tensor("c", {5, 3}, TensorType::F32, pattern_bytes(60));
  return writer.build();
}

TEST(GgufHostile, EveryTruncationIsRefused) {
  for (const uint32_t version : {2u, 3u}) {
    const Bytes bytes = small_file(version);
    ASSERT_EQ(gguf_error(bytes), "no error");
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::string error = gguf_error(std::span(bytes).first(size));
      ASSERT_EQ(error.rfind("bad.gguf: ", 0), 0u) << size << ": " << error;
      ASSERT_NE(error.find(size == 0 ? "is empty" : "the file is cut short or damaged"), std::string::npos)
          << size << ": " << error;
      ASSERT_EQ(error.find('\n'), std::string::npos);
    }
  }
}

TEST(GgufHostile, TheRealFileCutAnywhereIsRefused) {
  std::ifstream stream(QUIRE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf", std::ios::binary);
  if (!stream) GTEST_SKIP() << "the model is not there";
  Bytes bytes(40 << 20);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_EQ(stream.gcount(), static_cast<std::streamsize>(bytes.size()));
  std::vector<size_t> sizes(4096);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
  for (const size_t size :
       {1u << 19, 1700000u, 1785000u, 1785663u, 1785664u, 1785665u, 31866687u, 40u << 20}) {
    sizes.push_back(size);
  }
  for (const size_t size : sizes) {
    const std::string error = gguf_error(std::span(bytes).first(size));
    ASSERT_NE(error.find(size == 0 ? "is empty" : "cut short"), std::string::npos) << size << ": " << error;
  }
  EXPECT_EQ(
      gguf_error(std::span(bytes).first(1785664)),
      "bad.gguf: tensor 'token_embd.weight' reaches past the end of the file: its 30081024 bytes begin at "
      "offset 0 of the data, which begin at byte 1785664, but the file is cut short or damaged and ends "
      "at byte 1785664");
}

// Every byte of a small file set to a few values: an Error or a file, never anything else (run under ASan).
TEST(GgufHostile, SingleByteDamageNeverBreaksTheReader) {
  Bytes bytes = small_file();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::byte saved = bytes[i];
    for (const int value : {0x00, 0x01, 0x09, 0x7f, 0x80, 0xff}) {
      bytes[i] = static_cast<std::byte>(value);
      const std::string error = gguf_error(bytes);
      ASSERT_TRUE(error == "no error" || error.starts_with("bad.gguf: ")) << i << ": " << error;
    }
    bytes[i] = saved;
  }
}

TEST(GgufHostile, OtherKindsOfFile) {
  EXPECT_EQ(gguf_error(Bytes{}), "bad.gguf: the file is empty");
  EXPECT_EQ(
      gguf_error(text_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n")),
      "bad.gguf: this is a Git LFS pointer, not the model itself; fetch the file with 'git lfs pull'");
  EXPECT_EQ(gguf_error(text_bytes("PK\x03\x04zip")),
            "bad.gguf: this is not a GGUF file: it begins with 'PK\\x03\\x04' instead of 'GGUF'");
  EXPECT_EQ(gguf_error(text_bytes("gguf")),
            "bad.gguf: this is not a GGUF file: it begins with 'gguf' instead of 'GGUF'");
  EXPECT_EQ(gguf_error(text_bytes("GX")),
            "bad.gguf: this is not a GGUF file: it begins with 'GX' instead of 'GGUF'");
  EXPECT_EQ(gguf_error(text_bytes("tjgg\x03")),
            "bad.gguf: this is a GGML file from before GGUF; convert it to GGUF");
  EXPECT_EQ(gguf_error(text_bytes("GGU")),
            "bad.gguf: the file is cut short or damaged: the magic 'GGUF' of the header needs 4 bytes at "
            "byte 0, but "
            "the file ends at byte 3");
}

TEST(GgufHostile, VersionsAndByteOrder) {
  for (const uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    GgufWriter writer;
    writer.version = version;
    EXPECT_EQ(gguf_error(writer), "bad.gguf: GGUF version " + std::to_string(version) +
                                      " is not supported; versions 2 and 3 are read");
  }
  GgufWriter writer;
  writer.version = 0x03000000;
  EXPECT_EQ(
      gguf_error(writer),
      "bad.gguf: this is a big-endian GGUF file (version 3 with its bytes reversed); only little-endian "
      "ones are read");
  writer.magic = "FUGG";
  EXPECT_EQ(gguf_error(writer), "bad.gguf: this is a big-endian GGUF file; only little-endian ones are read");
}

TEST(GgufHostile, CountsThatCannotFit) {
  for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX}) {
    GgufWriter entries;
    entries.add<uint32_t>("key", 1);
    entries.n_entries = count;
    EXPECT_EQ(gguf_error(entries), "bad.gguf: the file is cut short or damaged: its header claims " +
                                       std::to_string(count) +
                                       " metadata entries, but the 19 bytes after the header hold at most 1");
    GgufWriter tensors;
    tensors.n_tensors = count;
    EXPECT_EQ(gguf_error(tensors), "bad.gguf: the file is cut short or damaged: its header claims " +
                                       std::to_string(count) +
                                       " tensors, but the 8 bytes after the header hold at most 0");
  }
}

// The check of the counts must not refuse files of the smallest entries and infos there are.
TEST(GgufHostile, CountsThatJustFit) {
  GgufWriter entries;
  for (char key = 'a'; key <= 'z'; ++key) entries.add<uint8_t>(std::string(1, key), 1);
  EXPECT_EQ(gguf_error(entries), "no error");
  GgufWriter tensors;
  tensors.add_tensor("!", {1}, TensorType::F16, pattern_bytes(2));
  for (char name = '"'; name <= '~'; ++name) tensors.add_info(std::string(1, name), {1}, 1, 0);
  EXPECT_EQ(gguf_error(tensors), "no error");
}

TEST(GgufHostile, Keys) {
  EXPECT_EQ(gguf_error(GgufWriter().add<uint32_t>("", 1)),
            "bad.gguf: metadata entry 1 of 1 at byte 24 has an empty key");
  EXPECT_EQ(gguf_error(GgufWriter().add<uint8_t>(std::string(65536, 'k'), 1)),
            "bad.gguf: metadata entry 1 of 1 at byte 24 has a key of 65536 bytes; the limit is 65535");
  EXPECT_EQ(gguf_error(GgufWriter().add<uint8_t>(std::string(65535, 'k'), 1)), "no error");
  EXPECT_EQ(gguf_error(GgufWriter().add<uint8_t>("a", 1).add<uint8_t>("b", 1).add<int32_t>("a", 1)),
            "bad.gguf: the metadata key 'a' is there twice (entries 1 and 3)");
  Bytes bytes = GgufWriter().add<uint32_t>("key", 1).build();
  const uint64_t length = uint64_t{1} << 63;
  std::memcpy(bytes.data() + 24, &length, sizeof length);
  EXPECT_EQ(gguf_error(bytes),
            "bad.gguf: the file is cut short or damaged: the key of metadata entry 1 of 1 needs "
            "9223372036854775808 bytes at byte 32, but the file ends at byte 43");
}

TEST(GgufHostile, KeysCannotForgeTheMessage) {
  const std::string error =
      gguf_error(GgufWriter().add_raw("a\n\x1b[31m'\xff", 99, ByteWriter()).add<int8_t>("b", 1));
  EXPECT_EQ(error,
            "bad.gguf: metadata entry 1 of 2 ('a\\x0a\\x1b[31m\\x27\\xff') has the unknown value type 99 at "
            "byte 41");
  const std::string cut = gguf_error(GgufWriter().add_raw(std::string(500, 'k'), 99, ByteWriter()));
  EXPECT_NE(cut.find("'" + std::string(80, 'k') + "...'"), std::string::npos) << cut;
}

TEST(GgufHostile, Values) {
  EXPECT_EQ(gguf_error(GgufWriter().add_raw("key", 13, ByteWriter().put<uint64_t>(0))),
            "bad.gguf: metadata entry 1 of 1 ('key') has the unknown value type 13 at byte 35");
  EXPECT_EQ(gguf_error(GgufWriter().add_raw("key", 0xffffffffu, ByteWriter())),
            "bad.gguf: metadata entry 1 of 1 ('key') has the unknown value type 4294967295 at byte 35");
  EXPECT_EQ(gguf_error(GgufWriter().add_raw("key", MetadataType::Bool, ByteWriter().put<uint8_t>(2))),
            "bad.gguf: metadata entry 1 of 1 ('key') holds 2 as a bool at byte 39; only 0 and 1 are bools");
  EXPECT_EQ(
      gguf_error(GgufWriter().add_raw("key", MetadataType::String, ByteWriter().put(uint64_t{1} << 63))),
      "bad.gguf: the file is cut short or damaged: the value of metadata entry 1 of 1 ('key') needs "
      "9223372036854775808 bytes at byte 47, but the file ends at byte 47");
}

ByteWriter array_body(uint32_t element_type, uint64_t n_values) {
  return ByteWriter().put(element_type).put(n_values);
}

TEST(GgufHostile, Arrays) {
  const auto error_of_array = [](const ByteWriter& body) {
    return gguf_error(GgufWriter().add_raw("key", MetadataType::Array, body));
  };
  for (const uint32_t type : {0u, 5u, 8u, 12u}) {
    for (const uint64_t n_values : {uint64_t{33}, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX}) {
      EXPECT_EQ(
          error_of_array(array_body(type, n_values).put<uint64_t>(0).put<uint64_t>(0)),
          "bad.gguf: the file is cut short or damaged: metadata entry 1 of 1 ('key') claims an array of " +
              std::to_string(n_values) + " values at byte 51, but only 16 bytes follow");
    }
  }
  EXPECT_EQ(error_of_array(array_body(77, 1).put<uint8_t>(0)),
            "bad.gguf: metadata entry 1 of 1 ('key') is an array of the unknown value type 77 at byte 39");
  EXPECT_EQ(error_of_array(array_body(8, 2).put_string("ab").put(uint64_t{1} << 40)),
            "bad.gguf: the file is cut short or damaged: the array of metadata entry 1 of 1 ('key') needs "
            "1099511627776 bytes at byte 69, but the file ends at byte 69");
  EXPECT_EQ(error_of_array(array_body(7, 2).put<uint8_t>(1).put<uint8_t>(7)),
            "bad.gguf: metadata entry 1 of 1 ('key') holds 7 as a bool at byte 52; only 0 and 1 are bools");
}

TEST(GgufHostile, NestedArrays) {
  for (const int depth : {1, 1000, 100000}) {
    ByteWriter body;
    for (int i = 0; i < depth; ++i) body.put_bytes(array_body(9, 1).bytes());
    body.put_bytes(array_body(0, 1).bytes()).put<uint8_t>(1);
    EXPECT_EQ(
        gguf_error(GgufWriter().add_raw("key", MetadataType::Array, body)),
        "bad.gguf: metadata entry 1 of 1 ('key') is an array of arrays at byte 39; arrays are not nested in "
        "any model we read");
  }
}

TEST(GgufHostile, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 2u, 3u, 4u, 24u, 1u << 21, 1u << 31, 0xffffffffu}) {
    EXPECT_EQ(gguf_error(GgufWriter().add<uint32_t>("general.alignment", alignment)),
              "bad.gguf: the metadata key 'general.alignment' is " + std::to_string(alignment) +
                  "; it must be a power of two from 8 to 1048576");
  }
  EXPECT_EQ(gguf_error(GgufWriter().add<int32_t>("general.alignment", 32)),
            "bad.gguf: the metadata key 'general.alignment' has type i32, but u32 is wanted");
  EXPECT_EQ(gguf_error(GgufWriter().add("general.alignment", "32")),
            "bad.gguf: the metadata key 'general.alignment' has type string, but u32 is wanted");
}

TEST(GgufHostile, SplitCountOfTheWrongType) {
  EXPECT_EQ(gguf_error(GgufWriter().add("split.count", "3")),
            "bad.gguf: the metadata key 'split.count' has type string, but an integer is wanted");
  EXPECT_EQ(gguf_error(GgufWriter().add<int32_t>("split.count", -1)),
            "bad.gguf: the metadata key 'split.count' is -1 (i32), but it must not be negative");
}

TEST(GgufHostile, TensorNames) {
  const Bytes data = pattern_bytes(4);
  EXPECT_EQ(gguf_error(GgufWriter().add_tensor("", {1}, TensorType::F32, data)),
            "bad.gguf: tensor info 1 of 1 at byte 24 has an empty name");
  EXPECT_EQ(gguf_error(GgufWriter().add_tensor(std::string(65536, 'n'), {1}, TensorType::F32, data)),
            "bad.gguf: tensor info 1 of 1 at byte 24 has a name of 65536 bytes; the limit is 65535");
  GgufWriter twins;
  for (const char* name : {"x", "twin", "y", "twin"}) twins.add_tensor(name, {1}, TensorType::F32, data);
  EXPECT_EQ(gguf_error(twins), "bad.gguf: tensor 'twin' is there twice (tensors 2 and 4)");
}

TEST(GgufHostile, TensorTypes) {
  const auto error_of_type = [](uint32_t type) {
    return gguf_error(GgufWriter().add_info("blk.0.w", {256}, type, 0));
  };
  const std::string tail =
      " at byte 51; supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K";
  EXPECT_EQ(error_of_type(10), "bad.gguf: tensor 'blk.0.w' has the unsupported type 10 (Q2_K)" + tail);
  EXPECT_EQ(error_of_type(39), "bad.gguf: tensor 'blk.0.w' has the unsupported type 39 (MXFP4)" + tail);
  EXPECT_EQ(error_of_type(42), "bad.gguf: tensor 'blk.0.w' has the unsupported type 42" + tail);
  EXPECT_EQ(error_of_type(105), "bad.gguf: tensor 'blk.0.w' has the unsupported type 105" + tail);
  EXPECT_EQ(error_of_type(4294967295u),
            "bad.gguf: tensor 'blk.0.w' has the unsupported type 4294967295" + tail);
}

TEST(GgufHostile, TensorShapes) {
  const auto error_of_shape = [](const std::vector<uint64_t>& shape, TensorType type = TensorType::F32) {
    return gguf_error(GgufWriter().add_info("w", shape, static_cast<uint32_t>(type), 0));
  };
  EXPECT_EQ(error_of_shape({}), "bad.gguf: tensor 'w' has 0 dimensions at byte 33; it must have 1 to 4");
  EXPECT_EQ(error_of_shape({1, 1, 1, 1, 1}),
            "bad.gguf: tensor 'w' has 5 dimensions at byte 33; it must have 1 to 4");
  EXPECT_EQ(error_of_shape({4, 0, 2}),
            "bad.gguf: tensor 'w' has a dimension of 0 in its shape [4, 0, 2] at byte 37");
  EXPECT_EQ(error_of_shape({48}, TensorType::Q4_1),
            "bad.gguf: tensor 'w' has rows of 48 values, which is not a multiple of the 32 values in a block "
            "of its "
            "type Q4_1");
  EXPECT_EQ(
      error_of_shape({288, 256}, TensorType::Q4_K),
      "bad.gguf: tensor 'w' has rows of 288 values, which is not a multiple of the 256 values in a block of "
      "its type Q4_K");
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_EQ(error_of_shape({big, big}),
            "bad.gguf: tensor 'w' is too large: its shape [4294967296, 4294967296] overflows 64 bits");
  EXPECT_EQ(error_of_shape({UINT64_MAX}),
            "bad.gguf: tensor 'w' is too large: its shape [18446744073709551615] overflows 64 bits");
  // The bytes would fit in 64 bits, those of an f32 copy would not.
  EXPECT_NE(error_of_shape({uint64_t{1} << 62}, TensorType::Q4_1).find("overflows"), std::string::npos);
  EXPECT_NE(error_of_shape({1 << 20, 1 << 20, 1 << 20, 1 << 20}).find("overflows"), std::string::npos);
  EXPECT_NE(error_of_shape({big * 2, big / 8, 8}, TensorType::Q4_1).find("overflows"), std::string::npos);
}

TEST(GgufHostile, TensorOffsets) {
  const auto error_of_offset = [](uint64_t offset, uint64_t n_values = 16) {
    GgufWriter writer;
    writer.add_tensor("good", {16}, TensorType::F32, pattern_bytes(64));
    return gguf_error(writer.add_info("w", {n_values}, 0, offset));
  };
  EXPECT_EQ(error_of_offset(0), "no error");
  EXPECT_EQ(error_of_offset(4),
            "bad.gguf: tensor 'w' lies at offset 4 of the data, which is not aligned to 32 bytes");
  const auto past_end = [](uint64_t offset, uint64_t n_bytes) {
    return "bad.gguf: tensor 'w' reaches past the end of the file: its " + std::to_string(n_bytes) +
           " bytes begin at offset " + std::to_string(offset) +
           " of the data, which begin at byte 96, but the file is cut short or damaged and ends at byte 160";
  };
  EXPECT_EQ(error_of_offset(32), past_end(32, 64));
  EXPECT_EQ(error_of_offset(64), past_end(64, 64));
  EXPECT_EQ(error_of_offset(uint64_t{1} << 63), past_end(uint64_t{1} << 63, 64));
  EXPECT_EQ(error_of_offset(UINT64_MAX - 31), past_end(UINT64_MAX - 31, 64));
  EXPECT_EQ(error_of_offset(0, 17), past_end(0, 68));
  EXPECT_EQ(error_of_offset(0, uint64_t{1} << 61), past_end(0, uint64_t{1} << 63));
}

}  // namespace
}  // namespace quire::test
