// Split models: parts found, joined and refused (cases U29).
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "unit/temporary_folder.h"
#include "unit/weights/folder_writer.h"
#include "weights/open_model.h"

namespace quire::test {
namespace {

class OpenSplit : public TemporaryFolder {
 protected:
  // Part `part` of `n_parts` that together have `n_tensors`; its own tensor is called `name`.
  static GgufWriter part_of(uint16_t part, uint16_t n_parts, int32_t n_tensors, const std::string& name) {
    GgufWriter writer;
    if (part == 0) writer.add("general.architecture", "llama").add<uint32_t>("llama.block_count", 7);
    writer.add<uint16_t>("split.no", part).add<uint16_t>("split.count", n_parts);
    writer.add<int32_t>("split.tensors.count", n_tensors);
    writer.add_tensor(name, {4, 2}, TensorType::F32, pattern_bytes(32, part + 1u));
    return writer;
  }

  std::string write(const std::string& name, const GgufWriter& writer) const {
    write_file(folder / name, writer.build());
    return (folder / name).string();
  }

  void write_three() const {
    for (uint16_t i = 0; i < 3; ++i) {
      write("big-0000" + std::to_string(i + 1) + "-of-00003.gguf", part_of(i, 3, 3, "w" + std::to_string(i)));
    }
  }

  std::string error_of(const std::string& name) const {
    try {
      (void)open_model((folder / name).string());
    } catch (const Error& error) {
      std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos);
      const std::string path = folder.string() + "/";
      for (size_t at = 0; (at = text.find(path)) != std::string::npos;) text.erase(at, path.size());
      return text;
    }
    return "no error";
  }
};

TEST_F(OpenSplit, AnyPartGivesTheWholeModel) {
  write_three();
  std::string fingerprint;
  for (const char* name : {"big-00001-of-00003.gguf", "big-00002-of-00003.gguf", "big-00003-of-00003.gguf"}) {
    const GgufFile file = open_model((folder / name).string());
    EXPECT_EQ(file.path(), (folder / name).string());
    EXPECT_EQ(file.form(), "3 GGUF parts");
    EXPECT_EQ(file.get_string("general.architecture"), "llama");
    EXPECT_EQ(file.find("split.count"), nullptr);
    ASSERT_EQ(file.tensors().size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      const TensorInfo& tensor = file.tensor("w" + std::to_string(i));
      EXPECT_EQ(&tensor, &file.tensors()[i]);  // in the order of the parts
      EXPECT_EQ(Bytes(tensor.data, tensor.data + tensor.size_bytes), pattern_bytes(32, i + 1));
      file.drop_pages(tensor);
    }
    EXPECT_EQ(file.file_size(), std::filesystem::file_size(folder / "big-00001-of-00003.gguf") +
                                    2 * std::filesystem::file_size(folder / "big-00002-of-00003.gguf"));
    if (fingerprint.empty()) fingerprint = file.fingerprint();
    EXPECT_EQ(file.fingerprint(), fingerprint);
  }
}

TEST_F(OpenSplit, MissingPartsAreNamed) {
  write_three();
  std::filesystem::remove(folder / "big-00002-of-00003.gguf");
  EXPECT_EQ(
      error_of("big-00003-of-00003.gguf"),
      "big-00003-of-00003.gguf: of the 3 parts of this split model 'big-00002-of-00003.gguf' is missing");
  std::filesystem::remove(folder / "big-00001-of-00003.gguf");
  EXPECT_EQ(
      error_of("big-00003-of-00003.gguf"),
      "big-00003-of-00003.gguf: of the 3 parts of this split model 'big-00001-of-00003.gguf' and 1 more "
      "are missing");
}

TEST_F(OpenSplit, OtherNamesAreRefused) {
  write("renamed.gguf", part_of(0, 3, 3, "w0"));
  const std::string sentence =
      "this is part 1 of 3 of a split model, and the others are found by their names; this one has to be "
      "called "
      "NAME-00001-of-00003.gguf";
  EXPECT_EQ(error_of("renamed.gguf"), "renamed.gguf: " + sentence);
  Bytes joined = part_of(0, 3, 3, "w0").build();  // with `cat`
  const Bytes second = part_of(1, 3, 3, "w1").build();
  joined.insert(joined.end(), second.begin(), second.end());
  write_file(folder / "joined.gguf", joined);
  EXPECT_EQ(error_of("joined.gguf"), "joined.gguf: " + sentence);
  write("odd.gguf", part_of(9, 3, 3, "w9"));
  EXPECT_EQ(error_of("odd.gguf"),
            "odd.gguf: this is one of 3 parts of a split model, and the others are found by their names");
  write("huge.gguf", GgufWriter().add<uint64_t>("split.count", UINT64_MAX));
  EXPECT_EQ(
      error_of("huge.gguf"),
      "huge.gguf: this is part 1 of 18446744073709551615 of a split model, and the others are found by their "
      "names");
}

TEST_F(OpenSplit, PartsOfOtherModelsAreRefused) {
  write_three();
  write("big-00002-of-00003.gguf", part_of(1, 3, 4, "w1"));
  EXPECT_EQ(error_of("big-00001-of-00003.gguf"),
            "big-00002-of-00003.gguf: this part belongs to another model than 'big-00001-of-00003.gguf'");
  write("big-00002-of-00003.gguf", part_of(1, 3, 3, "w1").add("general.architecture", "qwen2"));
  EXPECT_NE(error_of("big-00001-of-00003.gguf").find("belongs to another model"), std::string::npos);
  write("big-00002-of-00003.gguf", part_of(2, 3, 3, "w1"));
  EXPECT_EQ(
      error_of("big-00001-of-00003.gguf"),
      "big-00002-of-00003.gguf: by its name this is part 2 of 3 of a split model, but it says that this is "
      "part 3 of 3 of a split model");
  write("big-00002-of-00003.gguf", GgufWriter().add("general.architecture", "llama"));
  EXPECT_EQ(
      error_of("big-00001-of-00003.gguf"),
      "big-00002-of-00003.gguf: by its name this is part 2 of 3 of a split model, but it is a whole model");
  write_file(folder / "big-00002-of-00003.gguf", std::string("version https://git-lfs.github.com/spec/v1\n"));
  EXPECT_NE(error_of("big-00001-of-00003.gguf").find("big-00002-of-00003.gguf: this is a Git LFS pointer"),
            std::string::npos);
}

TEST_F(OpenSplit, TensorsAreCounted) {
  write_three();
  write("big-00002-of-00003.gguf", part_of(1, 3, 3, "w0"));
  EXPECT_EQ(error_of("big-00001-of-00003.gguf"),
            "big-00001-of-00003.gguf: tensor 'w0' is there twice (tensors 1 and 2)");
  for (uint16_t i = 0; i < 3; ++i) {
    write("big-0000" + std::to_string(i + 1) + "-of-00003.gguf", part_of(i, 3, 5, "w" + std::to_string(i)));
  }
  EXPECT_EQ(
      error_of("big-00001-of-00003.gguf"),
      "big-00001-of-00003.gguf: the parts of this split model have 3 tensors together, where 5 are wanted");
}

TEST_F(OpenSplit, OnePartOfOneIsWhole) {
  write("a-00001-of-00001.gguf", part_of(0, 1, 1, "w"));
  EXPECT_EQ(open_model((folder / "a-00001-of-00001.gguf").string()).form(), "GGUF version 3");
}

}  // namespace
}  // namespace quire::test
