#include "engine/vocabulary_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/temporary_folder.h"
#include "weights/gguf_header.h"

namespace quire::test {
namespace {

using Ids = std::vector<int32_t>;

// A SentencePiece vocabulary; `change` adds to its metadata.
template <typename Change>
GgufFile pieces_file(const char* architecture, const Change& change) {
  MetadataBuilder metadata;
  metadata.add_text("general.architecture", architecture);
  metadata.add_text("tokenizer.ggml.model", "llama");
  const std::vector<std::string_view> tokens{"<unk>",
                                             "<s>",
                                             "<|end|>",
                                             "\xE2\x96\x81",
                                             "a",
                                             "\xE2\x96\x81"
                                             "a"};
  metadata.add_texts("tokenizer.ggml.tokens", tokens);
  const std::vector<int32_t> types{kTokenUnknown, kTokenControl, kTokenControl,
                                   kTokenNormal,  kTokenNormal,  kTokenNormal};
  metadata.add_array("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  const std::vector<float> scores{0, 0, 0, -2, -2, -1};
  metadata.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
  metadata.add("tokenizer.ggml.bos_token_id", uint32_t{1});
  change(metadata);
  ModelParts parts;
  parts.path = "pieces.gguf";
  parts.metadata = std::move(metadata.entries);
  parts.memory = std::move(metadata.memory);
  return GgufFile::from_parts(std::move(parts));
}

TEST(VocabularyReader, PiecesBeginWithBosAndASpaceUnlessTheFileSaysOtherwise) {
  const GgufFile plain = pieces_file("llama", [](MetadataBuilder&) {});
  const Tokenizer tokenizer(read_vocabulary(plain));
  EXPECT_EQ(encode_prompt(tokenizer, "a", ControlTokens::kParse), (Ids{1, 5}));
  EXPECT_EQ(tokenizer.encode("x<unk>", ControlTokens::kParse), (Ids{3, 0, 0}));

  const GgufFile bare = pieces_file("gemma3", [](MetadataBuilder& metadata) {
    metadata.add("tokenizer.ggml.add_bos_token", false);
    metadata.add("tokenizer.ggml.add_space_prefix", false);
  });
  EXPECT_EQ(encode_prompt(Tokenizer(read_vocabulary(bare)), "a", ControlTokens::kParse), Ids{4});
}

TEST(VocabularyReader, ControlTokensOfPhi3TakeInWhiteSpace) {
  const GgufFile phi3 = pieces_file("phi3", [](MetadataBuilder&) {});
  EXPECT_EQ(Tokenizer(read_vocabulary(phi3)).encode("<|end|>\n<s>a", ControlTokens::kParse), (Ids{2, 1, 5}));
  const GgufFile llama = pieces_file("llama", [](MetadataBuilder&) {});
  EXPECT_EQ(Tokenizer(read_vocabulary(llama)).encode("<|end|>\n<s>a", ControlTokens::kParse),
            (Ids{2, 3, 0, 1, 5}));
}

TEST(VocabularyReader, ATableOfReplacementsIsRefused) {
  const std::vector<int8_t> table{1, 2, 3};
  const GgufFile file = pieces_file("llama", [&](MetadataBuilder& metadata) {
    metadata.add_array("tokenizer.ggml.precompiled_charsmap", std::span<const int8_t>(table));
  });
  EXPECT_THROW(read_vocabulary(file), Error);
}

class VocabularyOfAFolder : public TemporaryFolder {};

TEST_F(VocabularyOfAFolder, IsThatOfItsTokenizerJson) {
  ModelParts parts;
  parts.path = folder.string();
  const GgufFile file = GgufFile::from_parts(std::move(parts));
  try {
    read_vocabulary(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), folder.string() + " has no tokenizer.json");
  }
}

}  // namespace
}  // namespace quire::test
